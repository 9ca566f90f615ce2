package sqlite

import (
	"database/sql"
	"errors"
	"slices"
)

const (
	sqlFindPolicy = `SELECT policy FROM main.errand_policy WHERE doc = ?1`
	sqlAddPolicy  = `INSERT INTO main.errand_policy (doc) VALUES (?1)`
	sqlPolicy     = `SELECT doc FROM main.errand_policy WHERE policy = ?1`
	sqlRefer      = `UPDATE main.errand_policy SET refs = refs + ?2 WHERE policy = ?1`
	// The last one stays: its number would be given again, to another document.
	sqlDropPolicies = `DELETE FROM main.errand_policy WHERE policy IN
(SELECT policy FROM main.errand_policy WHERE refs = 0 AND policy < (SELECT MAX(policy) FROM main.errand_policy) LIMIT 1000)`
)

// mostPolicies is how many documents are kept in memory.
const mostPolicies = 1000

// policy returns the number under which a policy document is stored, and 0 for
// none.
func (t *tx) policy(doc []byte) (int64, error) {
	if len(doc) == 0 {
		return 0, nil
	}
	var id int64
	err := t.row(sqlFindPolicy, []any{string(doc)}, &id)
	if errors.Is(err, sql.ErrNoRows) {
		var res sql.Result
		if res, err = t.exec(sqlAddPolicy, string(doc)); err == nil {
			id, err = res.LastInsertId()
			t.tidy = true
		}
	}
	return id, err
}

// policyDoc is the reverse of policy.
func (t *tx) policyDoc(id int64) ([]byte, error) {
	if id == 0 {
		return nil, nil
	}
	if doc, ok := t.store.cache.policy(id); ok {
		return slices.Clone(doc), nil
	}
	var doc []byte
	if err := t.row(sqlPolicy, []any{id}, &doc); err != nil {
		return nil, err
	}
	t.after = append(t.after, func() { t.store.cache.keepPolicy(id, slices.Clone(doc)) }) // not before: a rollback frees the number
	return doc, nil
}

// refer counts n references to a policy more; 0 stands for none.
func (t *tx) refer(policy, n int64) {
	if policy == 0 {
		return
	}
	if t.refs == nil {
		t.refs = map[int64]int64{}
	}
	t.refs[policy] += n
}

// flushPolicies writes what refer has counted. When policies are added, or jobs
// deleted after their time, it also deletes policies that nothing refers to. Not
// whenever a job ends: the next job may have the same policy.
func (t *tx) flushPolicies() error {
	for policy, n := range t.refs {
		if n == 0 {
			continue
		}
		if _, err := t.exec(sqlRefer, policy, n); err != nil {
			return err
		}
	}
	if !t.tidy || len(t.refs) == 0 {
		return nil
	}
	_, err := t.exec(sqlDropPolicies)
	return err
}
