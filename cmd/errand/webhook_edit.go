package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/internal/seconds"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/webhook"
)

// endpointFlags are the flags that say what an endpoint is.
type endpointFlags struct {
	description, policy, headerFile string
	eventTypes, headers             []string
}

func (f *endpointFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.description, "description", "", "text for people")
	flags.StringSliceVar(&f.eventTypes, "event-type", nil, "only messages of this type, such as invoice.paid or invoice.* (repeatable)")
	flags.StringArrayVar(&f.headers, "header", nil, "send this header, as in 'X-Shop: 7' (repeatable)")
	flags.StringVar(&f.headerFile, "header-file", "", "send the headers in this `FILE`, one a line")
	flags.StringVar(&f.policy, "policy", "", "the delivery policy: a `FILE`, or a preset of errand policy presets")
}

// set sets what flags name.
func (f *endpointFlags) set(cmd *cobra.Command, e *webhook.Endpoint) error {
	flags := cmd.Flags()
	if flags.Changed("description") {
		e.Description = f.description
	}
	if flags.Changed("event-type") {
		e.EventTypes = f.eventTypes
	}
	lines := f.headers
	if f.headerFile != "" {
		more, err := readLines(cmd.InOrStdin(), f.headerFile)
		if err != nil {
			return err
		}
		lines = slices.Concat(lines, more)
	}
	if len(lines) > 0 {
		headers, err := headersOf(lines)
		if err != nil {
			return err
		}
		all := maps.Clone(e.Headers)
		if all == nil {
			all = map[string]string{}
		}
		for name := range headers {
			maps.DeleteFunc(all, func(was, _ string) bool { return strings.EqualFold(was, name) })
		}
		maps.Copy(all, headers)
		e.Headers = all
	}
	if f.policy != "" {
		d, err := readDelivery(cmd.InOrStdin(), f.policy, policy.ProfileQueue)
		if err != nil {
			return err
		}
		e.Policy = &d
	}
	return nil
}

// headersOf reads headers. An error does not show the value, which may be a token.
func headersOf(lines []string) (map[string]string, error) {
	headers := map[string]string{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, errors.New("--header: must be a name, a colon and a value")
		}
		headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return headers, nil
}

// readLines reads the lines of a file, or of in if the name is -, that are not empty.
func readLines(in io.Reader, name string) (lines []string, err error) {
	data, err := readWhole(in, name)
	if err != nil {
		return nil, err
	}
	s := bufio.NewScanner(bytes.NewReader(data))
	s.Buffer(nil, maxFile+1)
	for s.Scan() {
		if line := strings.TrimSpace(s.Text()); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, s.Err()
}

// secretFlags are the flags that choose a secret.
type secretFlags struct {
	file    string
	ed25519 bool
}

// aboutSecrets is for the help of verbs that make secrets.
const aboutSecrets = `The secret that signs is made, and printed once; the receiver needs it. --secret-file
takes one from a file, or with - from standard input, and prints none: what is an
argument can be seen by all users of a machine while the command runs. --ed25519 makes
a pair of keys, and prints the public one.`

func (f *secretFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "secret-file", "", "sign with the secret in this `FILE`, or - for standard input")
	cmd.Flags().BoolVar(&f.ed25519, "ed25519", false, "sign with a new private key, and print the public one")
}

// secret returns what signs, and what is to be printed of it if it is new.
func (f *secretFlags) secret(in io.Reader) (s webhook.Secret, shown string, err error) {
	switch {
	case f.ed25519 && f.file != "":
		return s, "", errors.New("--ed25519 makes a key, and --secret-file has one: they exclude each other")
	case f.ed25519:
		private, public := webhook.NewKeyPair()
		return private, public.Reveal(), nil
	case f.file == "":
		s = webhook.NewSecret()
		return s, s.Reveal(), nil
	}
	all, err := readSecrets(in, f.file)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%s: must have one secret, has %d", f.file, len(all))
	}
	if err != nil {
		return s, "", err
	}
	return all[0], "", nil
}

// readSecrets reads secrets, one a line.
func readSecrets(in io.Reader, name string) (all []webhook.Secret, err error) {
	lines, err := readLines(in, name)
	if err != nil {
		return nil, err
	}
	for _, line := range lines {
		s, err := webhook.ParseSecret(line)
		if err != nil {
			return nil, ofFile(name, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// printNewSecret writes what the receiver needs of a new secret, if anything.
func printNewSecret(p *printer, shown string) {
	switch {
	case strings.HasPrefix(shown, "whpk_"):
		p.printf("public key %s\n", shown)
	case shown != "":
		p.printf("secret %s\n", shown)
	}
}

func webhookAddCommand(t *tool) *cobra.Command {
	var e webhook.Endpoint
	var f endpointFlags
	var s secretFlags
	var r reach
	cmd := &cobra.Command{
		Use:   "add FILE URL",
		Short: "Add an endpoint",
		Long: `Add an endpoint. Its URL must be https, and its host must have no special address, such
as one of a private network. --allow-http and --allow accept others; the program that
sends has to accept them too.

` + aboutSecrets + ` A header with a token is
better in a --header-file for the same reason.`,
		Example: `  errand webhooks add shop.db https://shop.example/hooks --id ledger --event-type 'invoice.*'
  errand webhooks add shop.db https://shop.example/hooks --secret-file secret --policy policy.json
  errand webhooks add shop.db http://127.0.0.1:9000/ --allow-http --allow 127.0.0.0/8`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := r.options()
			if err != nil {
				return err
			}
			if err := onceStdin(f.policy, f.headerFile, s.file); err != nil {
				return err
			}
			e.URL = args[1]
			if err := f.set(cmd, &e); err != nil {
				return err
			}
			secret, shown, err := s.secret(cmd.InOrStdin())
			if err != nil {
				return err
			}
			var made webhook.Endpoint
			err = t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) error {
				return t.hooks(q, o, func(h *webhook.Webhooks) error {
					added, _, err := h.Create(cmd.Context(), e, secret)
					if errors.Is(err, queue.ErrStale) {
						err = fmt.Errorf("endpoint %q is there already: errand webhooks update changes it", e.ID)
					}
					made = withoutTokens(added)
					return err
				})
			})
			if err != nil {
				return err
			}
			return t.show(struct {
				webhook.Endpoint
				Secret string `json:"secret,omitempty"` // shown once
			}{made, shown}, func(p *printer) {
				p.printf("%s: added\n", safe(made.ID))
				printNewSecret(p, shown)
			})
		},
	}
	cmd.Flags().StringVar(&e.ID, "id", "", "up to 64 letters, digits, underscores and hyphens (default: one is made)")
	f.add(cmd)
	s.add(cmd)
	r.add(cmd)
	completeArgs(cmd, nil)
	return cmd
}

// onceStdin returns an error if standard input is to be read for more than one thing.
func onceStdin(names ...string) error {
	if n := len(slices.DeleteFunc(names, func(s string) bool { return s != "-" })); n > 1 {
		return errors.New("-: standard input can be read for one thing only")
	}
	return nil
}

// clearable are what --clear takes back.
var clearable = map[string]func(e *webhook.Endpoint){
	"description": func(e *webhook.Endpoint) { e.Description = "" },
	"event-types": func(e *webhook.Endpoint) { e.EventTypes = nil },
	"headers":     func(e *webhook.Endpoint) { e.Headers = nil },
	"policy":      func(e *webhook.Endpoint) { e.Policy = nil },
}

func webhookUpdateCommand(t *tool) *cobra.Command {
	var url string
	var clears []string
	var f endpointFlags
	var r reach
	cmd := &cobra.Command{
		Use:   "update FILE ID",
		Short: "Change an endpoint",
		Long: `Change what flags name of an endpoint: the rest stays. Waiting deliveries, and dead ones
that are redriven, go by the new values. --header sets one header and keeps the others,
--event-type replaces all types. --clear comes first: with it, --header replaces all
headers.`,
		Example: `  errand webhooks update shop.db billing --url https://new.example/hooks
  errand webhooks update shop.db billing --clear event-types,policy --description 'takes all'`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := r.options()
			if err != nil {
				return err
			}
			if url == "" {
				o = anywhere() // the URL was accepted before
			}
			if err := onceStdin(f.policy, f.headerFile); err != nil {
				return err
			}
			takeBack, err := clearing(clears, clearable)
			if err != nil {
				return err
			}
			var changed webhook.Endpoint
			err = t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) error {
				return t.hooks(q, o, func(h *webhook.Webhooks) error {
					e, err := h.Endpoint(cmd.Context(), args[1])
					if err != nil {
						return err
					}
					takeBack(&e)
					if url != "" {
						e.URL = url
					}
					if err := f.set(cmd, &e); err != nil {
						return err
					}
					e, err = h.Update(cmd.Context(), e)
					changed = withoutTokens(e)
					return err
				})
			})
			if err != nil {
				return err
			}
			return t.show(changed, func(p *printer) { p.printf("%s: updated\n", safe(changed.ID)) })
		},
	}
	cmd.Flags().StringVar(&url, "url", "", "send to this URL")
	cmd.Flags().StringSliceVar(&clears, "clear", nil, "take back the description, event-types, headers or policy (repeatable)")
	f.add(cmd)
	r.add(cmd)
	completeArgs(cmd, endpointsOf)
	return cmd
}

func webhookRotateCommand(t *tool) *cobra.Command {
	var s secretFlags
	var overlap time.Duration
	cmd := &cobra.Command{
		Use:   "rotate-secret FILE ID",
		Short: "Replace the secret of an endpoint",
		Long: `Replace the secret of an endpoint. The old one signs too until the overlap is over, so
that the receiver can change in that time.

` + aboutSecrets,
		Example: `  errand webhooks rotate-secret shop.db billing
  errand webhooks rotate-secret shop.db billing --secret-file secret --overlap 1h`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			secret, shown, err := s.secret(cmd.InOrStdin())
			if err != nil {
				return err
			}
			err = t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) error {
				return t.hooks(q, anywhere(), func(h *webhook.Webhooks) error {
					_, err := h.RotateSecret(cmd.Context(), args[1], secret, overlap)
					return err
				})
			})
			if err != nil {
				return err
			}
			return t.show(struct {
				ID      string           `json:"id"`
				Secret  string           `json:"secret,omitempty"`
				Overlap seconds.Duration `json:"overlap_s"`
			}{args[1], shown, seconds.Duration(overlap)}, func(p *printer) {
				p.printf("%s: the secret is replaced", safe(args[1]))
				if overlap > 0 {
					p.printf("; the one before it signs too for %s", lasting(overlap))
				}
				p.printf("\n")
				printNewSecret(p, shown)
			})
		},
	}
	s.add(cmd)
	cmd.Flags().DurationVar(&overlap, "overlap", 24*time.Hour, "for how long the old secret signs too; 0: not at all")
	completeArgs(cmd, endpointsOf)
	return cmd
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
