package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/webhook"
)

func webhooksCommand(t *tool) *cobra.Command {
	return group("webhooks", "Endpoints of webhooks, and a receiver for development",
		`Look at the endpoints that a program sends webhooks to, and steer them. Changes hold for
waiting deliveries too. The command itself sends only the message of test: a program
with a worker delivers the others.

listen is a receiver for development.`,
		webhooksListCommand(t), webhookShowCommand(t), webhookAddCommand(t), webhookUpdateCommand(t), webhookRemoveCommand(t),
		webhookEnableCommand(t), webhookDisableCommand(t), webhookRotateCommand(t), webhookTestCommand(t), webhookReplayCommand(t),
		listenCommand(t))
}

// reach are the flags that say which URLs and addresses are accepted.
type reach struct {
	http  bool
	allow []string
}

func (r *reach) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&r.http, "allow-http", false, "accept URLs of http too")
	cmd.Flags().StringSliceVar(&r.allow, "allow", nil, "accept special addresses of this `CIDR`, as in 127.0.0.0/8 (repeatable)")
}

// options returns those of what the flags accept.
func (r *reach) options() (*webhook.Options, error) {
	o := &webhook.Options{AllowHTTP: r.http}
	for _, s := range r.allow {
		p, err := netip.ParsePrefix(s)
		if a, wrong := netip.ParseAddr(s); wrong == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("--allow %q: must be addresses as 10.0.0.0/8, or one address", s)
		}
		o.AllowAddresses = append(o.AllowAddresses, p)
	}
	return o, nil
}

// anywhere accepts what the program that sends may have accepted.
func anywhere() *webhook.Options {
	return &webhook.Options{
		AllowHTTP: true, AllowAddresses: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
	}
}

// hooks calls f with the webhooks of a queue.
func (t *tool) hooks(q *queue.Queue, o *webhook.Options, f func(h *webhook.Webhooks) error) error {
	o.Logger = t.logger()
	h, err := webhook.New(q, o)
	if err != nil {
		return err
	}
	defer h.Close()
	return f(h)
}

// eachEndpoint calls f for all endpoints, by ID.
func eachEndpoint(ctx context.Context, h *webhook.Webhooks, f func(e *webhook.Endpoint)) error {
	const page = 1000
	for after := ""; ; {
		all, err := h.Endpoints(ctx, after, page)
		for i := range all {
			f(&all[i])
		}
		if err != nil || len(all) < page {
			return err
		}
		after = all[len(all)-1].ID
	}
}

// endpointsOf returns the IDs of the endpoints.
func endpointsOf(ctx context.Context, q *queue.Queue) (ids []string, err error) {
	h, err := webhook.New(q, anywhere())
	if err != nil {
		return nil, err
	}
	defer h.Close()
	err = eachEndpoint(ctx, h, func(e *webhook.Endpoint) { ids = append(ids, e.ID) })
	return ids, err
}

// shownEndpoint is an endpoint with its deliveries.
type shownEndpoint struct {
	webhook.Endpoint
	Waiting int64         `json:"waiting"` // deliveries that have not ended
	Dead    int64         `json:"dead"`
	Secrets []shownSecret `json:"secrets,omitempty"`
}

// shownSecret is a secret that signs.
type shownSecret struct {
	Kind   string `json:"kind"`             // "whsec_...", "whsk_..."
	Public string `json:"public,omitempty"` // what verifies, if that is no secret
	Secret string `json:"secret,omitempty"` // only if it is asked for
}

// hidden stands for what may be a secret.
const hidden = "..."

// withoutTokens returns an endpoint without the values in which tokens may be: those of
// its headers, and the query of its URL.
func withoutTokens(e webhook.Endpoint) webhook.Endpoint {
	if before, _, ok := strings.Cut(e.URL, "?"); ok {
		e.URL = before + "?" + hidden
	}
	if len(e.Headers) > 0 {
		headers := map[string]string{}
		for name := range e.Headers {
			headers[name] = hidden
		}
		e.Headers = headers
	}
	return e
}

// deliveries returns how many deliveries to each endpoint wait, and are dead, by queue.
func deliveries(ctx context.Context, q *queue.Queue) (waiting, dead map[string]int64, err error) {
	counts, err := q.Counts(ctx)
	waiting, dead = map[string]int64{}, map[string]int64{}
	for _, c := range counts {
		switch c.State {
		case queue.Dead:
			dead[c.Queue] += c.N
		case queue.Scheduled, queue.Ready, queue.Running, queue.Blocked:
			waiting[c.Queue] += c.N
		}
	}
	return waiting, dead, err
}

func webhooksListCommand(t *tool) *cobra.Command {
	var states []string
	cmd := &cobra.Command{
		Use:   "ls FILE",
		Short: "List endpoints, with how many deliveries wait and are dead",
		Long: `List endpoints by ID. WAITING are the deliveries that have not ended. Secrets are not
shown, and dots stand for the queries of URLs and, with --json, for the values of
headers: see show.`,
		Example: `  errand webhooks ls shop.db
  errand webhooks ls shop.db --state held,disabled`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, s := range states {
				if !slices.Contains(endpointStates, webhook.State(s)) {
					return fmt.Errorf("--state %q: must be enabled, held or disabled", s)
				}
			}
			var all []shownEndpoint
			err := t.reading(cmd.Context(), args[0], func(q *queue.Queue) (err error) {
				all, err = t.endpoints(cmd.Context(), q, states)
				return err
			})
			if err != nil {
				return err
			}
			return t.show(map[string][]shownEndpoint{"endpoints": all}, func(p *printer) { t.printEndpoints(p, all) })
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only in this state: enabled, held or disabled (repeatable)")
	completeArgs(cmd, nil)
	return cmd
}

var endpointStates = []webhook.State{webhook.Enabled, webhook.Held, webhook.Disabled}

// endpoints lists the endpoints in some states, or in all.
func (t *tool) endpoints(ctx context.Context, q *queue.Queue, states []string) (all []shownEndpoint, err error) {
	all = []shownEndpoint{}
	waiting, dead, err := deliveries(ctx, q)
	if err != nil {
		return nil, err
	}
	err = t.hooks(q, anywhere(), func(h *webhook.Webhooks) error {
		return eachEndpoint(ctx, h, func(e *webhook.Endpoint) {
			if len(states) == 0 || slices.Contains(states, string(e.State)) {
				of := webhook.QueueOf(e.ID)
				all = append(all, shownEndpoint{Endpoint: withoutTokens(*e), Waiting: waiting[of], Dead: dead[of]})
			}
		})
	})
	return all, err
}

func (t *tool) printEndpoints(p *printer, all []shownEndpoint) {
	if len(all) == 0 {
		p.printf("no endpoints\n")
		return
	}
	list := table{head: []string{"ID", "STATE", "URL", "EVENT TYPES", " WAITING", " DEAD", "FAILING SINCE", "SINCE", "REASON"}}
	for i := range all {
		e := &all[i]
		dead := number(e.Dead)
		if e.Dead > 0 {
			dead = dead.in(red)
		}
		list.add(text(e.ID), endpointState(e.State), text(e.URL), text(orAll(e.EventTypes)), number(e.Waiting), dead,
			text(when(e.FailingSince)), text(when(e.Since)), text(orDash(e.Reason)))
	}
	list.print(p, t.out)
}

func endpointState(s webhook.State) cell {
	if s == webhook.Enabled {
		return text(string(s))
	}
	return text(string(s)).in(yellow)
}

func orAll(types []string) string {
	if len(types) == 0 {
		return "(all)"
	}
	return strings.Join(types, ", ")
}

func webhookShowCommand(t *tool) *cobra.Command {
	var reveal bool
	cmd := &cobra.Command{
		Use:   "show FILE ID",
		Short: "Show an endpoint",
		Long: `Show an endpoint. Dots stand for secrets, the values of headers and the query of the
URL; --reveal shows what they are.`,
		Example: `  errand webhooks show shop.db billing
  errand webhooks show shop.db billing --reveal`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var e shownEndpoint
			err := t.reading(cmd.Context(), args[0], func(q *queue.Queue) error {
				return t.hooks(q, anywhere(), func(h *webhook.Webhooks) (err error) {
					e, err = endpoint(cmd.Context(), q, h, args[1], reveal)
					return err
				})
			})
			if err != nil {
				return err
			}
			return t.show(e, func(p *printer) { printEndpoint(p, &e) })
		},
	}
	cmd.Flags().BoolVar(&reveal, "reveal", false, "show secrets, values of headers and the query")
	completeArgs(cmd, endpointsOf)
	return cmd
}

// endpoint returns an endpoint with its deliveries and secrets.
func endpoint(ctx context.Context, q *queue.Queue, h *webhook.Webhooks, id string, reveal bool) (shownEndpoint, error) {
	e, err := h.Endpoint(ctx, id)
	if err != nil {
		return shownEndpoint{}, err
	}
	waiting, dead, err := deliveries(ctx, q)
	if err != nil {
		return shownEndpoint{}, err
	}
	secrets, err := h.Secrets(ctx, id)
	if err != nil {
		return shownEndpoint{}, err
	}
	of := webhook.QueueOf(id)
	out := shownEndpoint{Endpoint: e, Waiting: waiting[of], Dead: dead[of]}
	if !reveal {
		out.Endpoint = withoutTokens(e)
	}
	for _, s := range secrets {
		shown := shownSecret{Kind: s.String()}
		if public, ok := s.Public(); ok {
			shown.Public = public.Reveal()
		}
		if reveal {
			shown.Secret = s.Reveal()
		}
		out.Secrets = append(out.Secrets, shown)
	}
	return out, nil
}

// field writes a line of what show writes.
func (p *printer) field(name, value string) { p.printf("%-12s %s\n", name, safe(value)) }

func printEndpoint(p *printer, e *shownEndpoint) {
	p.field("id", e.ID)
	p.field("url", e.URL)
	state := string(e.State)
	if !e.Since.IsZero() {
		state += " since " + when(e.Since)
	}
	if e.Reason != "" {
		state += ": " + e.Reason
	}
	p.field("state", state)
	if e.Description != "" {
		p.field("description", e.Description)
	}
	for _, name := range sortedKeys(e.Headers) {
		p.field("header", name+": "+e.Headers[name])
	}
	p.field("event types", orAll(e.EventTypes))
	if d := e.Policy; d != nil {
		printSections(p, d)
	}
	if !e.FailingSince.IsZero() {
		p.field("failing", "since "+when(e.FailingSince))
	}
	p.field("deliveries", fmt.Sprintf("%d waiting, %d dead", e.Waiting, e.Dead))
	for _, s := range e.Secrets {
		shown := s.Kind
		if s.Secret != "" {
			shown = s.Secret
		}
		if s.Public != "" {
			shown += ", verified with " + s.Public
		}
		p.field("secret", shown)
	}
	p.field("created", when(e.CreatedAt))
	if e.UpdatedAt.Sub(e.CreatedAt) >= time.Second {
		p.field("updated", when(e.UpdatedAt))
	}
}
