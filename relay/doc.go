// Package relay passes jobs from the queue of a device to that of a server: once, and those
// of a group in order, over any network. What follows is about the server.
//
// [Handler] is the server's side: it takes the requests of devices, and enqueues their jobs in
// its queue. A device has a name and a key. [PutDevice] adds it, and [Revoke] ends what it may:
//
//	private, public := relay.NewKey() // of the device
//	err := relay.PutDevice(ctx, q, relay.Device{Name: "pump-17", Key: public})
//	h, err := relay.Handler(q, &relay.HandlerOptions{Server: "jobs.example.org", Key: serverKey})
//	http.Handle("/relay", h)
//
// # Words
//
// A device sends its jobs on a few streams. A stream has a random ID and one request under
// way at a time, and the server keeps a row for it. What became of a job on the server is its
// outcome:
//
//   - enqueued: it is in the server's queue. Its [errand.JobInfo].Origin has the name of the
//     device and the job's ID there, as 32 hexadecimal digits.
//   - duplicate: another job holds its unique key, or it came before, see [Accept].
//   - refused: the server will never take it as it is, for a reason in words.
//   - behind: it was not tried, since a job of its group before it was refused.
//   - later: it was not tried, since the server has no room now, or the device has sent all that
//     it may today.
//
// A stream is held if the device has shown that its past is another than the server's: its
// card was cloned, or the file of one side was put back to an older copy. A held stream takes nothing
// until [Accept].
//
// # What a job is on the server
//
// Its kind, args, headers, priority, tags, group and unique key are those on the device; its windows
// are what was left of them. Its queue, policy and timeout are the server's. Groups and unique
// keys get the name of the device and a comma before them, so that no device meets those of
// another, see [Rights].SharedKeys. The header [MadeHeader] says when the job was made.
//
// # Answers
//
// The status of an answer is one of these. All but 200 say that the request had no effect:
//
//	200  the protocol's answer
//	400  the request is malformed, or for another server
//	401  it is not signed by a device that is known here
//	403  the device is revoked, or HandlerOptions.Authorize refuses it, or it has begun 1,000 streams already
//	408  its body did not come in time
//	413  it is too large
//	429  too many requests are in work; Retry-After says when there is a place
//	500  the server failed
//	503  the queue is closed, busy, or has no room; Retry-After says when to try again
//
// An answer is signed with the server's key, or with that of the device if both have the same.
// It is not if the server lacks the key, or could not find out who has signed the request. The status 401 is
// signed all the same, as the answer to the signature that came: whoever is in between can have it for a
// request of a device, whose gate then closes for a while.
package relay
