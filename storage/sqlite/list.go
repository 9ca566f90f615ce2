package sqlite

import (
	"encoding/json"
	"slices"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
)

const sqlTagsOf = `SELECT t.job, t.tag FROM json_each(?1) k CROSS JOIN errand_tag t ON t.job = k.value`

// records returns rows as records, with their tags.
func records(tx *sqlx.Tx, rows []recordRow) ([]storage.Record, error) {
	out := make([]storage.Record, len(rows))
	var tagged []int64
	at := map[int64]int{}
	for i := range rows {
		out[i] = rows[i].record()
		if rows[i].Options&hasTags != 0 {
			tagged = append(tagged, out[i].Key)
			at[out[i].Key] = i
		}
	}
	if len(tagged) == 0 {
		return out, nil
	}
	keys, err := json.Marshal(tagged)
	if err != nil {
		return nil, err
	}
	var tags []struct {
		Job int64
		Tag string
	}
	err = tx.Select(&tags, sqlTagsOf, string(keys))
	for _, t := range tags {
		r := &out[at[t.Job]]
		r.Tags = append(r.Tags, t.Tag)
	}
	for _, i := range at {
		slices.Sort(out[i].Tags)
	}
	return out, err
}
