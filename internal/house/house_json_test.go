package house_test

import (
	"encoding/json"
	"go/ast"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/relay"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/topic/filter"
	"github.com/errandq/errand/webhook"
)

// otherNames are the structs whose names in JSON are those of Amazon SNS.
var otherNames = []reflect.Type{
	reflect.TypeFor[policy.Policy](), reflect.TypeFor[policy.Document](), reflect.TypeFor[policy.Topic](),
	reflect.TypeFor[policy.Sources](), reflect.TypeFor[filter.Attribute](),
}

var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// JSON that others see has names in snake_case, and durations in seconds under names that
// end in _s: structs that the API returns, and what the command writes.
func TestHouse_json(t *testing.T) {
	r := returned{}
	r.methods(reflect.TypeFor[*errand.Queue]())
	r.methods(reflect.TypeFor[*errand.Worker]())
	r.methods(reflect.TypeFor[*topic.Topics]())
	r.methods(reflect.TypeFor[*webhook.Webhooks]())
	r.methods(reflect.TypeFor[policy.Policy]())
	r.add(reflect.TypeFor[relay.DeviceInfo]())
	for _, of := range []reflect.Type{
		reflect.TypeFor[errand.JobInfo](), reflect.TypeFor[errand.Failure](), reflect.TypeFor[errand.Event](), reflect.TypeFor[errand.Cause](),
		reflect.TypeFor[errand.Tick](), reflect.TypeFor[errand.WorkerLimit](), reflect.TypeFor[webhook.Answer](), reflect.TypeFor[topic.Published](),
		reflect.TypeFor[policy.Step](),
	} {
		if !r[of] {
			t.Errorf("%v was not found", of)
		}
	}
	own := map[string]bool{} // those that write JSON by themselves
	for of, has := range r {
		if !has {
			continue
		}
		if _, ok := of.MethodByName("MarshalJSON"); ok {
			own[of.Name()] = true
		}
		for i := range of.NumField() {
			if f := of.Field(i); f.IsExported() {
				checkTag(t, of.String(), f)
			}
		}
		checkJSON(t, of)
	}
	files := parseDir(t, "cmd/errand")
	n := 0
	for name, file := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.StructType:
				n += checkStruct(t, name, node, own)
			case *ast.CompositeLit:
				checkKeys(t, name, node)
			}
			return true
		})
	}
	if n < 20 {
		t.Errorf("only %d structs of the command have tags", n)
	}
}

// returned are the structs that methods return, and those in them: true for those with
// exported fields. Errors are not among them, nor options, which are passed in.
type returned map[reflect.Type]bool

// methods adds what the methods of a type return.
func (r returned) methods(of reflect.Type) {
	for m := range of.Methods() {
		for out := range m.Type.Outs() {
			r.add(out)
		}
	}
}

func (r returned) add(of reflect.Type) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan, reflect.Map:
		r.add(of.Elem())
	case reflect.Func:
		if of.CanSeq() || of.CanSeq2() {
			for in := range of.In(0).Ins() { // of yield
				r.add(in)
			}
		}
	case reflect.Struct:
		isError := reflect.PointerTo(of).Implements(reflect.TypeFor[error]())
		_, known := r[of]
		if known || isError || !strings.HasPrefix(of.PkgPath(), module) || slices.Contains(otherNames, of) || strings.HasSuffix(of.Name(), "Options") {
			return
		}
		r[of] = false
		for i := range of.NumField() {
			if f := of.Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				r[of] = true
				r.add(f.Type)
			}
		}
		if !r[of] {
			r.methods(reflect.PointerTo(of))
		}
	}
}

// checkTag checks the tag of an exported field.
func checkTag(t *testing.T, of string, f reflect.StructField) {
	t.Helper()
	tag := f.Tag.Get("json")
	name, _, _ := strings.Cut(tag, ",")
	switch {
	case tag == "-" || f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct:
	case !snakeCase.MatchString(name):
		t.Errorf("%s.%s has the name %q in JSON: must be snake_case", of, f.Name, name)
	case strings.Contains(f.Type.String(), "time.Duration") != (strings.HasSuffix(name, "_s") && f.Type.Kind() != reflect.Float64):
		t.Errorf("%s.%s is of type %v and has the name %q in JSON: durations, and no others, end in _s", of, f.Name, f.Type, name)
	}
}

// checkJSON writes a struct in which all fields are set, and reads it.
func checkJSON(t *testing.T, of reflect.Type) {
	t.Helper()
	v := reflect.New(of)
	const long = 1500 * time.Millisecond
	var names []string
	lasts := map[string]bool{}
	for _, f := range reflect.VisibleFields(of) {
		tag := f.Tag.Get("json")
		if tag == "-" || !f.IsExported() || len(f.Index) > 1 && of.FieldByIndex(f.Index[:1]).Tag.Get("json") == "-" {
			continue
		}
		field := v.Elem().FieldByIndex(f.Index)
		name, _, _ := strings.Cut(tag, ",")
		switch p := field.Addr().Interface().(type) {
		case *time.Duration:
			*p, lasts[name] = long, true
		case **time.Duration:
			*p, lasts[name] = new(long), true
		default:
			switch field.Kind() {
			case reflect.String:
				field.SetString("x")
			case reflect.Int, reflect.Int64:
				field.SetInt(1)
			case reflect.Bool:
				field.SetBool(true)
			default:
				continue
			}
		}
		names = append(names, name)
	}
	b, err := json.Marshal(v.Interface())
	if err != nil {
		t.Errorf("%v: %v", of, err)
		return
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Errorf("%v: %s: %v", of, b, err)
	}
	for _, name := range names {
		if got[name] == nil || lasts[name] && got[name] != long.Seconds() {
			t.Errorf("%v: field %s of %v in JSON is %v", of, name, slices.Sorted(maps.Keys(got)), got[name])
		}
	}
	again := reflect.New(of)
	if err := json.Unmarshal(b, again.Interface()); err != nil {
		t.Errorf("%v: %s: %v", of, b, err)
		return
	}
	for name := range lasts {
		same, err := json.Marshal(again.Interface())
		if err != nil || string(same) != string(b) {
			t.Errorf("%v: %s of %s is read as %s, %v", of, name, b, same, err)
		}
	}
}

// checkStruct checks a struct of the command if it has tags. It reports 1 if it does. own
// are the structs whose methods one that embeds them would get.
func checkStruct(t *testing.T, file string, of *ast.StructType, own map[string]bool) int {
	t.Helper()
	tagged := slices.ContainsFunc(of.Fields.List, func(f *ast.Field) bool { return f.Tag != nil })
	for _, f := range of.Fields.List {
		if len(f.Names) == 0 {
			if at, ok := f.Type.(*ast.SelectorExpr); ok && own[at.Sel.Name] {
				t.Errorf("%s: a struct embeds %s, whose method MarshalJSON it must not get", file, at.Sel.Name)
			}
			continue
		}
		if !tagged || !f.Names[0].IsExported() {
			continue
		}
		name := f.Names[0].Name
		if f.Tag == nil {
			t.Errorf("%s: field %s has no tag", file, name)
			continue
		}
		tag, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			t.Fatal(err)
		}
		key, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		if key != "-" && !snakeCase.MatchString(key) {
			t.Errorf("%s: field %s has the name %q in JSON: must be snake_case", file, name, key)
		}
		if key != "-" && isDuration(f.Type, "time") {
			t.Errorf("%s: field %s is a duration: must be a seconds.Duration, with a name that ends in _s", file, name)
		}
		if isDuration(f.Type, "seconds") && !strings.HasSuffix(key, "_s") {
			t.Errorf("%s: field %s is in seconds and has the name %q in JSON: must end in _s", file, name, key)
		}
	}
	if tagged {
		return 1
	}
	return 0
}

// isDuration reports whether a type is Duration of a package, or a pointer to it.
func isDuration(e ast.Expr, of string) bool {
	if p, ok := e.(*ast.StarExpr); ok {
		e = p.X
	}
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Duration" {
		return false
	}
	in, ok := s.X.(*ast.Ident)
	return ok && in.Name == of
}

// checkKeys checks the names in a map that the command may write as JSON.
func checkKeys(t *testing.T, file string, lit *ast.CompositeLit) {
	t.Helper()
	of, ok := lit.Type.(*ast.MapType)
	if !ok {
		return
	}
	if _, ok := of.Value.(*ast.FuncType); ok {
		return
	}
	for _, e := range lit.Elts {
		key, err := strconv.Unquote(literal(e.(*ast.KeyValueExpr).Key))
		if err == nil && !snakeCase.MatchString(key) {
			t.Errorf("%s: key %q of a map: must be snake_case", file, key)
		}
	}
}
