package storage

import (
	"slices"
	"strings"
)

// Origin says where a job came from that was passed on from another queue or system. The zero
// value is that of any other job.
//
// It is kept in two tags, see [FromTags]: so it goes with the job in every state, and an index
// finds the job. A column of its own would be one more that every job writes.
type Origin struct {
	// Device names the device or system. It has no space and no comma.
	Device string `json:"device"`
	// ID is what the job is called there. It has no space.
	ID string `json:"id"`
}

const fromTag = "errand.from:"

// FromTags returns the tags of a job that has an Origin: the first is that of all jobs of the
// device, and the last that of those with this ID. If the ID is empty there is only the first, and
// there is none if the Device is empty too. A [Filter] chooses by one of them.
func FromTags(o Origin) []string {
	switch {
	case o.Device == "":
		return nil
	case o.ID == "":
		return []string{fromTag + o.Device}
	}
	return []string{fromTag + o.Device, fromTag + o.Device + "," + o.ID}
}

// OriginOf returns the Origin of a job that has these tags, and the other tags. If there is none
// it is zero, and the others are tags itself; else they are new, and nil if there are none.
func OriginOf(tags []string) (o Origin, others []string) {
	for _, tag := range tags {
		from, ok := strings.CutPrefix(tag, fromTag)
		if !ok {
			continue
		}
		if device, id, ok := strings.Cut(from, ","); ok {
			o = Origin{device, id}
		}
	}
	if o == (Origin{}) {
		return o, tags
	}
	own := FromTags(o)
	for _, tag := range tags {
		if !slices.Contains(own, tag) {
			others = append(others, tag)
		}
	}
	return o, others
}
