package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/errandq/errand/webhook"
)

// jsonLines are command lines, in order, in a folder with the file jobs.db of fixture the file shop.db
// of shop, and those of newRelay. $NAME is an ID of fixture, and last.json what
// the line before has written.
const jsonLines = `
version
policy presets
policy check topic.json
policy show sns-customer --limit 3
policy effective shop.db invoice.paid paid-local
policy effective --topic topic.json
jobs ls jobs.db
jobs ls jobs.db --limit 2
jobs show jobs.db $DONE
jobs show jobs.db $DEAD
jobs show jobs.db $EVIL
jobs show jobs.db $RETRYING
jobs show jobs.db $SCHEDULED
jobs why jobs.db $READY
jobs why jobs.db $DEAD
jobs wait jobs.db $DONE $NOBODY
jobs wait jobs.db $DEAD
jobs wait jobs.db $NOBODY
status jobs.db --history=1h
watch jobs.db --count 1
jobs enqueue jobs.db --kind send --args {"n":1} --unique order-17 --header trace=b2 --tag tenant:ada --timeout 90s --start-within 1h
jobs enqueue jobs.db --kind send --args {"n":2} --unique order-17
jobs enqueue jobs.db --kind sum --args {"n":3} --delay 90s --policy sns-customer --priority -3
jobs ls jobs.db --queue default
jobs release-key jobs.db --kind send order-17
jobs release-key jobs.db --kind send order-17
jobs reschedule jobs.db $READY --delay 2h
jobs run jobs.db $READY $DONE
jobs edit jobs.db $SCHEDULED --priority 7 --policy webhook
jobs edit jobs.db $SCHEDULED --args {"n":4}
jobs show jobs.db $SCHEDULED
jobs cancel jobs.db $SCHEDULED $NOBODY
jobs cancel jobs.db --kind sum --yes
jobs rm jobs.db $DONE --yes
dead ls jobs.db
dead show jobs.db $DEAD
dead groups jobs.db
dead export jobs.db $DEAD
dead import new.db last.json --create
dead redrive jobs.db $DEAD --dry-run
dead redrive jobs.db $DEAD --rate 50
bulk ls jobs.db
bulk pause jobs.db
bulk resume jobs.db
bulk cancel jobs.db $BULK
bulk cancel jobs.db --all
bulk watch jobs.db
dead edit jobs.db $EVIL --set verdict=done --dry-run
dead edit jobs.db $EVIL --set verdict=done
dead purge jobs.db --all --yes
groups ls jobs.db
groups skip jobs.db mail ada@example.org
queues hold jobs.db mail --kind send --reason migration --for 90m
queues ls jobs.db
queues release jobs.db mail --kind send --reason migration
queues pause jobs.db mail
queues resume jobs.db mail
queues set jobs.db mail --max-jobs 9 --max-bytes 4000 --when-full evict-oldest --retention 90m --group-limit 2 --start-within 1500ms --finish-within 2h --on-expire dead
queues set jobs.db --kind send --starts 5 --per 1m --burst 2
queues set jobs.db --max-dead 3 --when-dead-full evict-oldest --retention -1s --min-free 1000 --min-free-priority 3
queues ls jobs.db
schedules ls jobs.db
schedules show jobs.db nightly
schedules add jobs.db weekly 30 6 * * 1 --kind send --zone UTC --jitter 90s --args {"n":1} --queue mail --priority 2
schedules add jobs.db weekly 30 6 * * 2 --kind send --zone UTC --jitter 90s --args {"n":1} --queue mail --priority 2
schedules pause jobs.db weekly
schedules resume jobs.db weekly
schedules run jobs.db weekly
schedules show jobs.db weekly
schedules rm jobs.db weekly --yes
work jobs.db --kind sum --until-empty -- true
backup jobs.db copy.db
compact copy.db
webhooks ls shop.db
webhooks show shop.db billing
webhooks show shop.db billing --reveal
webhooks add shop.db https://other.example/?t=1 --id ledger --event-type invoice.* --secret-file secret --header X-Token:a --policy webhook
webhooks add shop.db https://other.example/2 --id fresh
webhooks update shop.db ledger --description books
webhooks rotate-secret shop.db ledger --secret-file secret2 --overlap 90m
webhooks show shop.db ledger
webhooks disable shop.db ledger --reason away
webhooks show shop.db ledger
webhooks enable shop.db ledger
webhooks enable shop.db ledger
webhooks test shop.db local --allow-http --allow 127.0.0.0/8
webhooks replay shop.db ledger --since 2h
webhooks rm shop.db ledger --yes
topics ls shop.db
topics show shop.db invoice.paid
topics add shop.db orders --ordered --keep 36h --policy topic.json
topics update shop.db orders --keep 90m
topics update shop.db orders --clear keep,policy
topics publish shop.db invoice.paid --body a<b --attribute country=FI --attribute total:Number=99.5 --id m17 --tag tenant:ada
topics publish shop.db invoice.paid --body a<b --id m17
topics publish shop.db orders --body x --group g --id m18
jobs ls shop.db
jobs show shop.db $LAST
topics rm shop.db orders --yes
subscriptions ls shop.db
subscriptions show shop.db paid-local
subscriptions add shop.db invoice.paid --id paid-kind --kind book --queue books --filter {"n":[1]} --filter-scope MessageBody
subscriptions update shop.db paid-kind --clear filter
subscriptions pause shop.db paid-local
subscriptions resume shop.db paid-local
subscriptions replay shop.db paid-kind --since 2h
subscriptions redrive shop.db paid-kind --yes
subscriptions rm shop.db paid-kind --yes
queues set shop.db webhook/billing --max-jobs 1
topics publish shop.db invoice.paid --body x --id m20
webhooks rotate-secret shop.db billing --secret-file pair --overlap 90m
webhooks show shop.db billing --reveal
devices new-key pump-18.key
devices new-key meter-4.key --shared
devices add hub.db meter-4 --key meter-4.key --kind read --queue meters --min-priority -5 --max-priority 5 --bytes-a-day 1000 --shared-key site
devices ls hub.db
devices show hub.db pump-17
devices revoke hub.db meter-4
devices show hub.db meter-4
devices restore hub.db meter-4
devices accept hub.db --all
relay missing device.db
relay resend device.db
`

// notGolden are the verbs whose JSON is not compared here, with the test or the reason.
var notGolden = map[string]string{
	"errand metrics":         "it is text for Prometheus",
	"errand dashboard":       "it serves pages",
	"errand doctor":          "its findings depend on the file system: TestDoctor",
	"errand audit":           "it says who has done what: TestAudit",
	"errand policy plot":     "it draws",
	"errand webhooks listen": "it is a server: TestListen_JSON",
	"errand serve":           "it is a server: TestRelay_JSON",
	"errand relay":           "it has no end: TestRelay_JSON",
}

var (
	uuids    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
	changing = []struct {
		re *regexp.Regexp
		is string
	}{
		{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)`), "<time>$2"},
		{regexp.MustCompile(`("(?:waits_s|latency_s|duration_s|took_s|per_second|bytes|id|cause)": ?)[0-9.e-]+`), "${1}0"},
		{regexp.MustCompile(`("(?:next|instance|host)": ?)"[^"]+"`), `${1}"<any>"`},
		{regexp.MustCompile(`wh(sec|sk|pk)_[A-Za-z0-9+/=]+`), "wh${1}_<secret>"},
		{regexp.MustCompile(`(?s)("died": ?)\[[\s\d,]*\]`), "${1}[]"}, // by the hour of the clock
		{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:<port>"},
		{regexp.MustCompile(`(ed25519-public:)[0-9a-f]{64}`), "${1}<key>"},
		{regexp.MustCompile(`("(?:version|revision|go|system|sqlite|libc)": )"[^"]*"`), `${1}"<of the program>"`},
		// How many periods there are depends on when it runs.
		{regexp.MustCompile(`(?s)"history": \[\n +\{\n +"from".*?\n  \]`), `"history": []`},
	}
)

// constant returns JSON without what differs in each run.
func constant(out string, known *[]string) string {
	out = uuids.ReplaceAllStringFunc(out, func(id string) string {
		i := slices.Index(*known, id)
		if i < 0 {
			i = len(*known)
			*known = append(*known, id)
		}
		return fmt.Sprintf("<id %d>", i+1)
	})
	for _, c := range changing {
		out = c.re.ReplaceAllString(out, c.is)
	}
	return out
}

// What verbs write with --json is fixed, byte for byte: programs read it.
func TestJSON(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	ids, err := fixture(t.Context(), "jobs.db")
	if err != nil {
		t.Fatal(err)
	}
	shop(t, "shop.db", receiver(t))
	newRelay(t, ".")
	ids["NOBODY"] = "01890a5d-ac96-774b-bcce-b302099a8057"
	doc, err := os.ReadFile(filepath.Join(home, "testdata", "topic.json"))
	if err != nil {
		t.Fatal(err)
	}
	private, _ := webhook.NewKeyPair()
	for name, text := range map[string]string{
		"topic.json": string(doc), "secret": "whsec_" + strings.Repeat("QUFB", 8), "secret2": "whsec_" + strings.Repeat("QkJC", 8), "pair": private.Reveal(),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	var known []string
	var got strings.Builder
	for line := range strings.SplitSeq(strings.TrimSpace(jsonLines), "\n") {
		args := fields(line)
		for i := range args {
			args[i] = os.Expand(args[i], func(name string) string { return ids[name] })
		}
		cmd, _, err := newRoot(newTool(nil, nil, nil)).Find(args)
		if err != nil {
			t.Fatal(err)
		}
		seen[cmd.CommandPath()] = true
		status, out, errs := errand(t, "", append([]string{"--json"}, args...)...)
		if status == statusUnusable {
			t.Errorf("%s: %s", line, errs)
		}
		if err := os.WriteFile("last.json", []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		if all := uuids.FindAllString(out, -1); len(all) > 0 {
			ids["LAST"] = all[0]
			if strings.Contains(line, "--rate") {
				ids["BULK"] = all[0]
			}
		}
		fmt.Fprintf(&got, "$ %s\n%s= %d\n\n", line, constant(out, &known), status)
	}
	leaves(newRoot(newTool(nil, nil, nil)), func(cmd *cobra.Command) {
		if path := cmd.CommandPath(); seen[path] == (notGolden[path] != "") {
			t.Errorf("%s: no line of it is tried here, or its reason is not needed", path)
		}
	})
	golden := filepath.Join(home, "testdata", "json.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	for i, is := range strings.Split(got.String(), "\n\n$") {
		all := strings.Split(string(want), "\n\n$")
		if i >= len(all) || is != all[i] {
			t.Fatalf("got\n%s\nwant\n%s", is, strings.Join(all[min(i, len(all)):min(i+1, len(all))], ""))
		}
	}
}

// fields splits a command line. The five fields of a schedule's spec are one.
func fields(line string) []string {
	line, spec := specs.ReplaceAllString(line, "SPEC"), specs.FindString(line)
	all := strings.Fields(line)
	if i := slices.Index(all, "SPEC"); i >= 0 {
		all[i] = spec
	}
	return all
}

var specs = regexp.MustCompile(`\d+ \d+ \* \* \d`)
