// Package storagetest is the specification of [storage.Store] in the form of
// tests: each sentence of its comments that can be checked is a case here, in
// the same words. It holds a reference implementation too, [Memory].
package storagetest
