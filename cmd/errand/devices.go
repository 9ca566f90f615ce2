package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/relay"
)

func devicesCommand(t *tool) *cobra.Command {
	return group("devices", "Devices whose jobs a server takes",
		`Look at the devices whose jobs a server takes, and say what they may. FILE is the queue of
the server, which errand serve --relay serves, or a program. Changes hold from the next
request of a device on.`,
		deviceListCommand(t), deviceShowCommand(t), deviceAddCommand(t), deviceRevokeCommand(t), deviceRestoreCommand(t), deviceAcceptCommand(t), deviceNewKeyCommand(t))
}

// devicesOf returns the names of the devices.
func devicesOf(ctx context.Context, q *queue.Queue) (names []string, err error) {
	all, err := relay.Devices(ctx, q)
	for _, d := range all {
		names = append(names, d.Name)
	}
	return names, err
}

// deviceOf returns a device; an error that is ErrNotFound if there is none of that name.
func deviceOf(ctx context.Context, q *queue.Queue, name string) (relay.DeviceInfo, error) {
	all, err := relay.Devices(ctx, q)
	if err != nil {
		return relay.DeviceInfo{}, err
	}
	for _, d := range all {
		if d.Name == name {
			return d, nil
		}
	}
	return relay.DeviceInfo{}, fmt.Errorf("device %s: %w", name, queue.ErrNotFound)
}

// heldStreams returns how many streams of a device are held, and when one of them has sent last.
func heldStreams(d *relay.DeviceInfo) (held int, last time.Time) {
	for _, s := range d.Streams {
		if s.Held {
			held++
		}
		if s.LastSeen.After(last) {
			last = s.LastSeen
		}
	}
	return held, last
}

func deviceListCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls FILE",
		Short: "List the devices",
		Long: `List the devices, with what has become of the jobs that they have sent, and when they
sent last. LATER counts a job each time that it was told to come again. A device is held
if some of its streams are: errand devices show says which, errand devices accept lets
them go on.`,
		Example: "  errand devices ls hub.db",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all := []relay.DeviceInfo{}
			err := t.reading(cmd.Context(), args[0], func(q *queue.Queue) error {
				got, err := relay.Devices(cmd.Context(), q)
				all = append(all[:0], got...)
				return err
			})
			if err != nil {
				return err
			}
			return t.show(map[string][]relay.DeviceInfo{"devices": all}, func(p *printer) { t.printDevices(p, all) })
		},
	}
	completeArgs(cmd, nil)
	return cmd
}

func (t *tool) printDevices(p *printer, all []relay.DeviceInfo) {
	if len(all) == 0 {
		p.printf("this file has no devices\n")
		return
	}
	list := table{head: []string{"DEVICE", "STATE", " ENQUEUED", " DUPLICATES", " REFUSED", " LATER", " BYTES", "LAST SEEN"}}
	for i := range all {
		d := &all[i]
		_, last := heldStreams(d)
		refused := number(d.Counts.Refused)
		if d.Counts.Refused > 0 {
			refused = refused.in(red)
		}
		list.add(text(d.Name), deviceState(d), number(d.Counts.Enqueued), number(d.Counts.Duplicates), refused,
			number(d.Counts.Later), number(d.Counts.Bytes), text(when(last)))
	}
	list.print(p, t.out)
}

func deviceState(d *relay.DeviceInfo) cell {
	if !d.RevokedAt.IsZero() {
		return text("revoked since " + when(d.RevokedAt)).in(yellow)
	}
	if held, _ := heldStreams(d); held > 0 {
		return text(fmt.Sprintf("%d of %d streams held", held, len(d.Streams))).in(yellow)
	}
	if d.Full {
		return text(fmt.Sprintf("%d streams, no more are taken", len(d.Streams))).in(yellow)
	}
	return text("taken")
}

func deviceShowCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show FILE NAME",
		Short:   "Show a device and its streams",
		Long:    "Show a device: what it may, and its streams with what has become of their jobs.",
		Example: "  errand devices show hub.db pump-17",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var d relay.DeviceInfo
			err := t.reading(cmd.Context(), args[0], func(q *queue.Queue) (err error) {
				d, err = deviceOf(cmd.Context(), q, args[1])
				return err
			})
			if err != nil {
				return err
			}
			return t.show(&d, func(p *printer) { t.printDevice(p, &d) })
		},
	}
	completeArgs(cmd, devicesOf)
	return cmd
}

func (t *tool) printDevice(p *printer, d *relay.DeviceInfo) {
	p.field("device", d.Name)
	p.field("state", deviceState(d).text)
	p.field("key", cmp.Or(d.PublicKey, d.KeyKind))
	r := &d.Rights
	p.field("kinds", orAll(r.Kinds))
	if r.Queue != "" {
		p.field("queue", r.Queue)
	}
	if r.MinPriority != 0 || r.MaxPriority != 0 {
		p.field("priority", fmt.Sprintf("%d to %d", r.MinPriority, r.MaxPriority))
	}
	if r.BytesADay > 0 {
		p.field("bytes a day", fmt.Sprint(r.BytesADay))
	}
	if len(r.SharedKeys) > 0 {
		p.field("shared keys", strings.Join(r.SharedKeys, ", "))
	}
	p.field("created", when(d.CreatedAt))
	if len(d.Streams) == 0 {
		return
	}
	p.printf("\n")
	list := table{head: []string{"STREAM", "STATE", " REQUESTS", " ENQUEUED", " DUPLICATES", " REFUSED", " LATER", " BYTES", "LAST SEEN"}}
	for _, s := range d.Streams {
		state := text("taken")
		if s.Held {
			state = text("held").in(yellow)
		}
		list.add(text(s.ID), state, number(int64(s.N)), number(s.Counts.Enqueued), number(s.Counts.Duplicates), number(s.Counts.Refused),
			number(s.Counts.Later), number(s.Counts.Bytes), text(when(s.LastSeen)))
	}
	list.print(p, t.out)
}

func deviceAddCommand(t *tool) *cobra.Command {
	var key, newKey string
	var mutual bool
	var rights relay.Rights
	cmd := &cobra.Command{
		Use:   "add FILE NAME",
		Short: "Add a device, or replace its key and its rights",
		Long: `Add a device whose jobs the server takes, or replace the key and the rights of the one with
this NAME. A device that was revoked may send again; errand devices restore lets it do so
with the key and the rights that it had.

--key is the public key of the device, as a line or in a file, or the file with a key that
both sides have; - is standard input. --new-key makes the key here, and writes its private
half to a new file that only you may read: move this to the device. The public half is
printed. With --mtls there is no key: the certificate of the device has NAME as a DNS name
or as its common name.

Without further flags a device may send jobs of all kinds and priorities, which are
enqueued in the queue that the server has for all devices. Groups and unique keys of its
jobs are its own, but for those that begin with a --shared-key.`,
		Example: `  errand devices add hub.db pump-18 --key ed25519-public:3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29
  errand devices add hub.db pump-19 --new-key pump-19.key --kind measure --kind alarm --bytes-a-day 10485760`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			d := relay.Device{Name: args[1], Rights: rights}
			if mutual {
				d.Key = relay.MutualTLS
			}
			flags := cmd.Flags()
			if lowest, highest := flags.Changed("min-priority"), flags.Changed("max-priority"); lowest != highest {
				return errors.New("--min-priority and --max-priority need each other")
			}
			replaced := false
			var before, out relay.DeviceInfo
			err := t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) (err error) {
				ctx := cmd.Context()
				if before, err = deviceOf(ctx, q, d.Name); err == nil {
					replaced = true
				} else if !errors.Is(err, queue.ErrNotFound) {
					return err
				}
				if err := t.putDevice(ctx, q, d, key, newKey); err != nil {
					return err
				}
				out, err = deviceOf(ctx, q, d.Name)
				return err
			})
			if err != nil {
				return err
			}
			return t.show(&out, func(p *printer) {
				said := "added"
				if replaced {
					said = "key and rights replaced"
				}
				p.printf("%s: %s\n", safe(d.Name), said)
				if was, is := rightsText(&before.Rights), rightsText(&out.Rights); replaced && was != is {
					p.printf("it could send: %s\n", safe(was))
					p.printf("it may now send: %s\n", safe(is))
				}
				if newKey != "" {
					p.printf("its public key is %s\n", safe(out.PublicKey))
					p.printf("its private key is in %s: move it to the device\n", safe(newKey))
				}
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&key, "key", "", "the key of the device: a public `KEY`, or the name of a file")
	f.BoolVar(&mutual, "mtls", false, "the device has no key: its certificate names it, see --tls-client-ca of errand serve")
	f.StringVar(&newKey, "new-key", "", "make a key, and write its private half to this `FILE`")
	f.StringSliceVar(&rights.Kinds, "kind", nil, "take only jobs of this kind (repeatable)")
	f.StringVar(&rights.Queue, "queue", "", "enqueue its jobs in this queue")
	f.IntVar(&rights.MinPriority, "min-priority", 0, "take only jobs of this priority and above, up to --max-priority")
	f.IntVar(&rights.MaxPriority, "max-priority", 0, "take only jobs of this priority and below")
	f.Int64Var(&rights.BytesADay, "bytes-a-day", 0, "take so many bytes in a day of UTC (0: any number)")
	f.StringSliceVar(&rights.SharedKeys, "shared-key", nil, "groups and unique keys that begin with this `PREFIX` are not its own (repeatable)")
	cmd.MarkFlagsOneRequired("key", "new-key", "mtls")
	cmd.MarkFlagsMutuallyExclusive("key", "new-key", "mtls")
	completeArgs(cmd, devicesOf)
	completeFlag(cmd, "kind", kindsOf)
	completeFlag(cmd, "queue", queuesOf)
	return cmd
}

// rightsText returns in a line what a device may.
func rightsText(r *relay.Rights) string {
	all := []string{"kinds " + orAll(r.Kinds)}
	if r.Queue != "" {
		all = append(all, "queue "+r.Queue)
	}
	if r.MinPriority != 0 || r.MaxPriority != 0 {
		all = append(all, fmt.Sprintf("priority %d to %d", r.MinPriority, r.MaxPriority))
	}
	if r.BytesADay > 0 {
		all = append(all, fmt.Sprintf("bytes a day %d", r.BytesADay))
	}
	if len(r.SharedKeys) > 0 {
		all = append(all, "shared keys "+strings.Join(r.SharedKeys, ", "))
	}
	return strings.Join(all, "; ")
}

// putDevice adds a device with the key that it has, with one that is given, or with a new one. There is no file of a new key if there is
// an error.
func (t *tool) putDevice(ctx context.Context, q *queue.Queue, d relay.Device, key, newKey string) (err error) {
	switch {
	case d.Key != "":
		return relay.PutDevice(ctx, q, d)
	case newKey == "":
		if d.Key, err = t.publicOf("key", key); err != nil {
			return err
		}
		return relay.PutDevice(ctx, q, d)
	}
	private, public := relay.NewKey()
	if err := writeKey(newKey, private); err != nil {
		return fmt.Errorf("--new-key: %w", err)
	}
	d.Key = public
	if err := relay.PutDevice(ctx, q, d); err != nil {
		return errors.Join(err, os.Remove(newKey))
	}
	return nil
}

func deviceRevokeCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke FILE NAME",
		Short: "Take nothing of a device any more",
		Long: `Take nothing of a device any more, also not of requests that are on their way. The jobs
that came before stay, and the device keeps those that it has. errand devices restore lets
it send again.`,
		Example: "  errand devices revoke hub.db pump-17",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) error { return relay.Revoke(cmd.Context(), q, args[1]) })
			if err != nil {
				return err
			}
			return t.show(map[string]string{"revoked": args[1]}, func(p *printer) { p.printf("%s: revoked\n", safe(args[1])) })
		},
	}
	completeArgs(cmd, devicesOf)
	return cmd
}

func deviceRestoreCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "restore FILE NAME",
		Short:   "Let a device that was revoked send again",
		Long:    "Let a device that was revoked send again, with the key and the rights that it had.",
		Example: "  errand devices restore hub.db pump-17",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) error { return relay.Restore(cmd.Context(), q, args[1]) })
			if err != nil {
				return err
			}
			return t.show(map[string]string{"restored": args[1]}, func(p *printer) { p.printf("%s: may send\n", safe(args[1])) })
		},
	}
	completeArgs(cmd, devicesOf)
	return cmd
}

func deviceAcceptCommand(t *tool) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "accept FILE NAME|--all",
		Short: "Let the held streams of a device go on",
		Long: `Let the held streams of a device go on, or with --all those of all devices. A stream is held
if the device has shown that its past is another than that of the server: its card was
cloned, or the file of one side was put back to an older copy. The device goes on when it
next asks, within about a minute, or when errand relay is started again there.

From then on each job of the device is looked up before it is enqueued, so that one that
the server still has is not enqueued again. A job that the server has deleted since is.

After the server was put back, wait until the device has gone on. Then errand relay
missing lists there what the server lacks, and errand relay resend sends it again. A stream
learns of it when it next asks or sends: repeat both until no more is listed.`,
		Example: "  errand devices accept hub.db pump-17\n  errand devices accept hub.db --all",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := strings.Join(args[1:], "")
			if (name != "") == all || all && len(args) == 2 { // an empty name would stand for all
				return errors.New("accept needs the NAME of a device or --all, and not both")
			}
			n := 0
			err := t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) (err error) {
				n, err = relay.Accept(cmd.Context(), q, name)
				return err
			})
			return t.inPart(cmd.Context(), n, map[string]int{"accepted": n}, func(p *printer) { p.printf("%s\n", goOn(n)) }, err)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "the streams of all devices")
	completeArgs(cmd, devicesOf)
	return cmd
}

func goOn(streams int) string {
	const when = " when the device next asks, within about a minute"
	switch streams {
	case 0:
		return "no stream was held"
	case 1:
		return "1 stream goes on" + when
	}
	return fmt.Sprintf("%d streams go on%s", streams, when)
}
