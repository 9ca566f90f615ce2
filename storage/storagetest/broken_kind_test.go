package storagetest

import (
	"slices"

	"github.com/errandq/errand/storage"
)

// ofKinds has the model see, in place of all kinds, those of the jobs of which f is true.
func ofKinds(f func(j *job) bool) func(in *instance) storage.Store {
	return before(func(m *Memory, x *storage.Exchange) {
		x.Wants = slices.Clone(x.Wants)
		for i := range x.Wants {
			if w := &x.Wants[i]; w.OfAnyKind() {
				w.Kinds = []string{"none"}
				for _, j := range m.where(f, byKey) {
					w.Kinds = append(w.Kinds, j.Kind)
				}
			}
		}
	})
}

var kindFaults = []fault{
	{"all kinds are none", "kinds_all", ofKinds(func(*job) bool { return false })},
	{"kinds that come later are not found", "kinds_all", ofKinds(func(j *job) bool { return j.Kind != "later" })},
	{"all kinds are also those of BulkQueue", "kinds_bulk", ofKinds(func(*job) bool { return true })},
	{"an exception of all kinds is none", "kinds_except", wanting(func(w *storage.Want) {
		w.Except = slices.DeleteFunc(slices.Clone(w.Except), func(l storage.Lane) bool { return l.Kind == storage.AnyKind })
	})},
	{"an exception of one kind is of all", "kinds_except", wanting(func(w *storage.Want) {
		w.Except = slices.Clone(w.Except)
		for i := range w.Except {
			w.Except[i].Kind = storage.AnyKind
		}
	})},
	{"holds of one of all kinds are no reason to come back", "kinds_holds", ofKinds(func(j *job) bool { return j.Kind == kind })},
	{"all kinds are not handed over", "kinds_handoff", offeringOf(func(w *storage.Want) { w.Kinds = nil })},
	{"a call is of one kind", "together_kinds", ofKinds(func(*job) bool { return true })},
	{"a head brings those that are held", "together_kinds", before(func(m *Memory, x *storage.Exchange) { m.holds = nil })},
	{"a head brings those that are not wanted", "together_kinds", wanting(func(w *storage.Want) { w.Except = nil })},
}
