package house

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// APIFile has the API of the last release, or of 29 November 2026 until there is one.
const APIFile = "internal/house/api.txt"

// API returns the exported names of the public packages that versions promise, see
// docs/versions.md. By name, as in policy.Retries and Queue.Close of the root, each has how it is
// declared, without the names of parameters.
func API(dir string) (map[string]string, error) {
	all := map[string]string{}
	err := public(dir, func(folder string, file *ast.File) {
		if folder == "storage/postgres" { // experimental
			return
		}
		in := ""
		if folder != "." {
			in = path.Base(folder) + "."
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				declared(all, in, d)
			case *ast.GenDecl:
				var last *ast.ValueSpec // whose type and values constants below it repeat
				for i, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						typed(all, in, s)
					case *ast.ValueSpec:
						if last == nil || s.Type != nil || s.Values != nil {
							last = s
						}
						valued(all, in, d.Tok, i, s.Names, last)
					}
				}
			}
		}
	})
	return all, err
}

// APIText has a line for each name of an API, in their order.
func APIText(api map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(api)) {
		b.WriteString(name + ": " + api[name] + "\n")
	}
	return b.String()
}

// ParseAPI is the reverse of [APIText].
func ParseAPI(text string) map[string]string {
	api := map[string]string{}
	for line := range strings.Lines(text) {
		name, how, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		api[name] = how
	}
	return api
}

// APIChanges returns the names that are in only one of the two, or declared otherwise.
func APIChanges(before, after map[string]string) (names []string) {
	for name, how := range before {
		if after[name] != how {
			names = append(names, name)
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func declared(api map[string]string, in string, d *ast.FuncDecl) {
	if !d.Name.IsExported() {
		return
	}
	if d.Recv == nil {
		api[in+d.Name.Name] = "func" + parameters(d.Type.TypeParams, "[", "]") + signature(d.Type)
		return
	}
	if of := Receiver(d.Recv.List[0].Type); ast.IsExported(of) {
		api[in+of+"."+d.Name.Name] = "method of " + types.ExprString(d.Recv.List[0].Type) + ", " + signature(d.Type)
	}
}

func valued(api map[string]string, in string, tok token.Token, row int, names []*ast.Ident, as *ast.ValueSpec) {
	for i, n := range names {
		if !n.IsExported() {
			continue
		}
		how := tok.String()
		if as.Type != nil {
			how += " " + types.ExprString(as.Type)
		}
		if tok == token.CONST && i < len(as.Values) {
			value := types.ExprString(as.Values[i])
			how += " = " + value
			if strings.Contains(value, "iota") {
				how += ", iota is " + strconv.Itoa(row)
			}
		}
		api[in+n.Name] = how
	}
}

func typed(api map[string]string, in string, s *ast.TypeSpec) {
	if !s.Name.IsExported() {
		return
	}
	name, how := in+s.Name.Name, "type"+parameters(s.TypeParams, "[", "]")
	if s.Assign.IsValid() {
		how += " ="
	}
	switch t := s.Type.(type) {
	case *ast.StructType:
		api[name] = how + " struct"
		members(api, name, "field ", t.Fields)
	case *ast.InterfaceType:
		api[name] = how + " interface"
		members(api, name, "", t.Methods)
	default:
		api[name] = how + " " + types.ExprString(s.Type)
	}
}

// members adds the exported fields of a struct or the methods of an interface.
func members(api map[string]string, of, what string, list *ast.FieldList) {
	for _, f := range list.List {
		how := what + types.ExprString(f.Type)
		if t, ok := f.Type.(*ast.FuncType); ok {
			how = cmp.Or(what, "method, ") + signature(t)
		}
		if f.Tag != nil {
			how += " " + f.Tag.Value
		}
		if len(f.Names) == 0 { // embedded
			e := f.Type
			if p, ok := e.(*ast.StarExpr); ok {
				e = p.X
			}
			text := types.ExprString(e)
			if name := text[strings.LastIndex(text, ".")+1:]; ast.IsExported(name) {
				api[of+"."+name] = "embedded " + how
			}
		}
		for _, n := range f.Names {
			if n.IsExported() {
				api[of+"."+n.Name] = how
			}
		}
	}
}

func signature(t *ast.FuncType) string {
	text := parameters(t.Params, "(", ")")
	if text == "" {
		text = "()"
	}
	switch n := t.Results.NumFields(); {
	case n == 1:
		text += " " + parameters(t.Results, "", "")
	case n > 1:
		text += " " + parameters(t.Results, "(", ")")
	}
	return text
}

// parameters lists the types of parameters, and also the names of type parameters.
func parameters(list *ast.FieldList, open, closed string) string {
	if list == nil {
		return ""
	}
	var all []string
	for _, f := range list.List {
		of := types.ExprString(f.Type)
		if t, ok := f.Type.(*ast.FuncType); ok {
			of = "func" + signature(t)
		}
		for range max(1, len(f.Names)) {
			all = append(all, of)
		}
		if open == "[" {
			for i, n := range f.Names {
				all[len(all)-len(f.Names)+i] = n.Name + " " + of
			}
		}
	}
	return open + strings.Join(all, ", ") + closed
}
