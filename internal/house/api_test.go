package house_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/errandq/errand/internal/house"
)

// Each exported name that is new, gone or declared otherwise since the last release is in the
// changelog.
//
//errand:shows the API since the last release | | each name that is new, gone or declared otherwise is named in the changelog
func TestAPI(t *testing.T) {
	api, err := house.API(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(api) < 2000 {
		t.Fatalf("only %d names found", len(api))
	}
	_, unreleased, ok := strings.Cut(read(t, "CHANGELOG.md"), "\n## Unreleased\n")
	unreleased, _, _ = strings.Cut(unreleased, "\n## ")
	if !ok {
		t.Fatal("CHANGELOG.md has no section Unreleased")
	}
	before := house.ParseAPI(read(t, house.APIFile))
	for _, name := range unsaid(before, api, unreleased) {
		t.Errorf("%s was %q, and is %q: name it as `%[1]s` under Unreleased in CHANGELOG.md, and say what to do", name, before[name], api[name])
	}
}

// unsaid returns the names that have changed and that the text does not name. With a type that is
// new or gone all of its members are named.
func unsaid(before, after map[string]string, text string) (names []string) {
	said := map[string]bool{}
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			for _, name := range regexp.MustCompile(`[\w.]+`).FindAllString(part, -1) {
				said[name] = true
			}
		}
	}
	for _, name := range house.APIChanges(before, after) {
		of, _, _ := strings.Cut(name, ".")
		if i := strings.LastIndex(name, "."); i > 0 {
			of = name[:i]
		}
		_, was := before[of]
		_, is := after[of]
		if !said[name] && (!said[of] || was == is) {
			names = append(names, name)
		}
	}
	return names
}

func TestAPI_unsaid(t *testing.T) {
	before := map[string]string{"Kept": "type struct", "Kept.Same": "field int", "Kept.Other": "field int", "Kept.Gone": "field int", "Old": "type struct", "Old.Field": "field int", "sqlite.Open": "func()"}
	after := map[string]string{"Kept": "type struct", "Kept.Same": "field int", "Kept.Other": "field string", "New": "type struct", "New.Field": "field int", "sqlite.Open": "func(string)"}
	for text, want := range map[string][]string{
		"nothing": {"Kept.Gone", "Kept.Other", "New", "New.Field", "Old", "Old.Field", "sqlite.Open"},
		"Say Old and New in words, and `Kept`, `Open`.":                   {"Kept.Gone", "Kept.Other", "New", "New.Field", "Old", "Old.Field", "sqlite.Open"},
		"`Old` is gone. `New{}` and `sqlite.Open(path)`, `Kept.Other`.":   {"Kept.Gone"},
		"`Old.Field`, `New.Field`, `Kept.Gone`, `Kept.Other,sqlite.Open`": {"New", "Old"},
	} {
		if got := unsaid(before, after, text); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// What an API is told by is all that a caller depends on.
func TestAPI_names(t *testing.T) {
	api, err := house.API(".")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Open":                 "func(context.Context, string, *Options) (*Queue, error)",
		"Handle":               "func[A Args](*Worker, func(context.Context, *Job[A]) error, ...HandlerOptions)",
		"Queue.Close":          "method of *Queue, () error",
		"Job.Resume":           "method of *Job[A], (any) (bool, error)",
		"Options.Retention":    "field time.Duration",
		"Count":                "type = storage.Count",
		"ErrInvalid":           "var",
		"Args.Kind":            "method, () string",
		"OverlapAllow":         `const Overlap = "allow"`,
		"policy.Retries":       "func(int) Policy",
		"dashboard.Operator":   "const Role = iota + 1, iota is 1",
		"LaneSettings.Lane":    "embedded field Lane",
		"storage.Store.Close":  "method, () error",
		"postgres.Open":        "",
		"storagetest.Run":      "",
		"queueClock":           "",
		"Queue.newInstance":    "",
		"Job.attempt":          "",
		"filter.Attribute":     "type struct",
		"policyhttp.NewClient": "func() *http.Client",
	} {
		if got := api[name]; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := house.ParseAPI(house.APIText(api)); !maps.Equal(got, api) {
		t.Errorf("written and read again it has %d names, want %d", len(got), len(api))
	}
}
