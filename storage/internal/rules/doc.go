// Package rules decides what becomes of jobs, once for all stores.
//
// It is pure: it knows no SQL, clock, random number or goroutine. What a [storage.Store] promises is
// said there; the comments here say how that comes about. Times are microseconds since 1970, as stores
// keep them.
//
// # The way of a call
//
// A [Tx] is what the calls of one transaction know of rows: of jobs ([Row]), unique keys ([Key]) and
// groups ([Group]). Each row is there as it was read, and as the decisions have left it. A call takes
// four steps:
//
//  1. It says what it is about, as a [Need]: [Need.Enter] for jobs that enter, [Need.End] for jobs
//     that may end, and the keys of jobs that are to be read. (need.go)
//  2. The store locks that, in the order of names, and reads it. It tells the Tx of each row by one of
//     the methods that begin with Read, also that nobody has a key. [Group.Reads] says how much of a
//     group has to be read, and [Need.Leave] whether its members are: not if none may leave its place.
//     What was not told is not known: a decision about it is [ErrNotLoaded], and never a guess. (tx.go)
//  3. The Tx decides: [Tx.Enter], [Tx.Finish], [Tx.Cancel], [Tx.Redrive], [Tx.RunNow], [Tx.Place] and
//     others. A decision changes [Row.Is], the Key and the Group, and nothing else. A decision about a
//     member notes its group, and [Tx.SettleAll] lets in and blocks members of the groups that were
//     noted. (decide.go, and a file for each kind of call)
//  4. The store writes [Tx.Changes]: the rows that are other than they were, each once, and the numbers
//     that follow from them. It need not know which rule has changed a row, or why. (changes.go)
//
// So a store has one statement for each set of columns. Calls of one transaction may follow each other
// without a read between them: a Tx knows what the calls before have left.
//
// storage/postgres does all of that. storage/sqlite has one writer: it reads and writes when it comes to a
// row, and decides by parts of a Tx, such as [Tx.Join] and [Tx.Claim] for jobs that enter, [Tx.End] for keys and
// [Tx.Settle] for groups. It tells three things a second time, as their rows would have to be read first:
// what an outcome does to an item (finish.go), with which role a member ends or is put back, by
// [GroupRule.Left] and [GroupRule.PutBack] (quit and regroupOf in group.go), and when groups are settled
// (regroupOnce and regroupNow in regroup.go). A rule about the end of an attempt is written there too.
//
// # The short way
//
// Most jobs have no unique key and no group. What becomes of these depends on no other row, so a store
// writes them without a Tx, many by one statement. [PlainJob] and [PlainFinish] say when. Stores list the
// statements of the short way, and their tests run random calls both ways and compare all tables.
//
// # Where a thing is
//
//	what                              rules                 storage/postgres                  storage/sqlite
//	what a call needs                 need.go               deciding.go (load)                  regroup.go (know)
//	what was read, and is known       tx.go                 deciding.go (scanKey, scanGroup)    conflict.go (readKey), regroup.go (readGroups)
//	a job enters                      decide.go             enqueue.go, keys.go               enqueue.go
//	who has a unique key              key.go                deciding.go (sqlKeys, writeKeys)    conflict.go
//	who has a place in a group        group.go              deciding.go (sqlGroup), groups.go   group.go, regroup.go
//	an attempt ends, or is put back   finish.go             finish.go                         finish.go, delta.go, group.go, exchange.go
//	a job is cancelled                finish.go             cancel.go                         job.go
//	a job is changed or run now       edit.go, runnow.go    change.go, runnow.go              edit.go, dead.go
//	a dead letter is redriven         redrive.go            redrive.go                        dead.go
//	rows and numbers to be written    changes.go            deciding.go (decided)               regroup.go (writeChanges), delta.go (apply)
//
// A unique key or a group that nobody has is locked on PostgreSQL by a row of its own, so that its first
// holder is an update too.
//
// # To add a rule
//
// Say that jobs shall have a mark that decides something when an attempt ends.
//
//  1. The contract comes first, see CONTRIBUTING.md: the comment in package storage, a case in
//     storagetest, the model.
//  2. If the rule reads a column that no rule has read, it becomes a field of [Job], [Key] or [Group],
//     whose comment says of which rows it is known. If a decision changes the field of a Job, it is a
//     field of [Standing] too, and so in Job.standing and Job.stand, so that [Row.Moved] sees the
//     change.
//  3. If it needs another row, or a key for it, that is a method or a field of [Need].
//  4. The rule is an if or a case in the method that decides, or a method of its own beside the others
//     that takes what was read. Members of a group are in the order of their keys: Group, ReadMember and
//     queries of stores compare these. The rule has a test beside it, in which memory_test.go is the store,
//     and faults in planted_test.go, each of which that test finds:
//     go test -tags planted ./storage/internal/rules.
//  5. A store gets the column: in the table, in the statement that reads the row, and in the one that
//     writes it. In deciding.go of storage/postgres these are made of numbersOf, which numbers.into
//     understands, and of placeColumns, and TestStore_Standing there names a field that is forgotten.
//     The store gets no branch but one between a zero and NULL: if it seems to need another, the rule has
//     told it too little.
package rules
