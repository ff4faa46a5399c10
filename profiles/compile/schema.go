package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// object is a JSON object; encoding/json writes its keys in order.
type object = map[string]any

// scalars are the schemas of the types that have an UnmarshalText.
var scalars = map[string]object{
	"UUID":      {"type": "string", "pattern": "^GPU-[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"},
	"PlainUUID": {"type": "string", "pattern": "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"},
	"LicenseExpiry": {"type": "string",
		"pattern": "^([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}|[Nn]ot[-_ ][Aa]vailable|[Ii]nvalid|[Nn]ot[-_ ][Aa]pplicable|[Pp]ermanent)$"},
	"DeviceName":  {"type": []any{"integer", "string"}, "minimum": 0, "pattern": "^([0-9]+|GPU-[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$"},
	"BusID":       {"type": "string", "pattern": `^(([0-9A-Fa-f]{4}){1,2}:)?[0-9A-Fa-f]{2}:[01][0-9A-Fa-f]\.[0-7]$`},
	"GUID":        {"type": "string", "pattern": "^(0x[0-9A-Fa-f]{16}|[0-9A-Fa-f]{4}(:?[0-9A-Fa-f]{4}){3})$"},
	"GUIDPrefix":  {"type": "string", "pattern": "^(0x)?[0-9A-Fa-f]{2}(:?[0-9A-Fa-f]{2}){0,5}$"},
	"HCAType":     {"type": "string", "pattern": "^MT[0-9]{4,5}$"},
	"HWRev":       {"type": []any{"integer", "string"}, "pattern": "^(0x)?[0-9A-Fa-f]{1,8}$", "minimum": 0},
	"Enabled":     {"enum": []any{"enabled", "disabled", true, false}},
	"PState":      {"type": "string", "pattern": "^P([0-9]|1[0-5])$"},
	"Percent":     {"type": []any{"integer", "string"}, "pattern": "^([0-9]{1,2}|100)$", "minimum": 0, "maximum": 100},
	"Address":     {"type": []any{"integer", "string"}},
	"ClusterUUID": {"type": "string", "pattern": "^[0-9A-Fa-f-]{32,36}$"},
	"ClockSteps": {"type": []any{"array", "string"}, "items": object{"type": "integer", "minimum": 0},
		"pattern": `^[1-9][0-9]{0,4}(\.5)?\.\.[1-9][0-9]{0,4}(\.5)?/[1-9][0-9]{0,4}(\.5)?$`},
	"Function": {"type": "string", "pattern": "^nvmlDevice[0-9A-Za-z_]+$"},
	"CPUSet":   {"type": "string", "pattern": "^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"},
}

// schema writes the JSON Schema of a profile file from the Go source of the types that read one.
func schema(dir string) ([]byte, error) {
	structs, err := parse(dir)
	if err != nil {
		return nil, err
	}
	defs := object{"absent": object{"description": "what the board does not have", "enum": []any{nil, "N/A"}}}
	for name, s := range structs {
		if strings.ToUpper(name[:1]) == name[:1] {
			defs[name] = s.schema(structs)
		}
	}
	root := structs["file"].schema(structs)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "nvmlfab GPU profile"
	used := used(root, defs)
	for name, def := range used {
		if def == nil {
			return nil, fmt.Errorf("%s: type %s is no struct: add it to the scalars of the schema", dir, name)
		}
	}
	root["$defs"] = used
	var w bytes.Buffer
	err = write(&w, root, 0)
	w.WriteString("\n")
	return w.Bytes(), err
}

// write writes JSON with one line for each key of a definition, so that a change of a key is a diff of one line.
func write(w *bytes.Buffer, v any, depth int) error {
	o, ok := v.(object)
	if !ok || depth > 3 {
		line, err := json.Marshal(v)
		w.Write(line)
		return err
	}
	w.WriteString("{")
	for i, key := range slices.Sorted(maps.Keys(o)) {
		if i > 0 {
			w.WriteString(",")
		}
		fmt.Fprintf(w, "\n%s%q: ", strings.Repeat("  ", depth+1), key)
		if err := write(w, o[key], depth+1); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\n%s}", strings.Repeat("  ", depth))
	return nil
}

// structType is a struct and its comment.
type structType struct {
	*ast.StructType
	doc string
}

// parse finds the structs of a folder's Go files.
func parse(dir string) (map[string]structType, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	structs := map[string]structType{}
	for _, path := range paths {
		if base := filepath.Base(path); strings.HasSuffix(base, "_test.go") || strings.HasPrefix(base, "boards_") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, decl := range f.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.TYPE {
				continue
			}
			for _, spec := range gen.Specs {
				spec := spec.(*ast.TypeSpec)
				if s, ok := spec.Type.(*ast.StructType); ok {
					structs[spec.Name.Name] = structType{s, gen.Doc.Text()}
				}
			}
		}
	}
	if _, ok := structs["file"]; !ok {
		return nil, fmt.Errorf("%s: there is no type file: is it the folder of package profiles?", dir)
	}
	return structs, nil
}

func (s structType) schema(structs map[string]structType) object {
	properties, required := object{}, []any{}
	for _, f := range s.Fields.List {
		if len(f.Names) == 0 { // embedded: its keys stand beside the others
			more := structs[f.Type.(*ast.Ident).Name].schema(structs)
			for key, value := range more["properties"].(object) {
				properties[key] = value
			}
			continue
		}
		if f.Tag == nil {
			continue
		}
		text, _ := strconv.Unquote(f.Tag.Value) // the parser has seen that it is a string
		tag := reflect.StructTag(text)
		key := tag.Get("yaml")
		if key == "" {
			continue
		}
		value := describe(typeSchema(f.Type, tag), f, key)
		properties[key] = value
		if also := tag.Get("also"); also != "" {
			properties[also] = value
		}
		if tag.Get("required") != "" {
			required = append(required, key)
		}
	}
	schema := object{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

// describe adds the field's comment to a schema, with the name of the key in place of the field's.
func describe(schema object, f *ast.Field, key string) object {
	text := strings.Join(strings.Fields(f.Doc.Text()), " ")
	described := object{"description": strings.Replace(text, f.Names[0].Name, key, 1)}
	for k, v := range schema {
		described[k] = v
	}
	return described
}

func typeSchema(t ast.Expr, tag reflect.StructTag) object {
	switch t := t.(type) {
	case *ast.IndexExpr:
		inner := typeSchema(t.Index, tag)
		if t.X.(*ast.Ident).Name == "raw" {
			return inner
		}
		return object{"anyOf": []any{inner, object{"$ref": "#/$defs/absent"}}}
	case *ast.ArrayType:
		return object{"type": "array", "items": typeSchema(t.Elt, tag)}
	case *ast.Ident:
		return named(t.Name, tag)
	}
	return object{}
}

func named(name string, tag reflect.StructTag) object {
	if scalar, ok := scalars[name]; ok {
		return scalar
	}
	var schema object
	switch name {
	case "string":
		schema = object{"type": "string", "minLength": 1}
	case "bool":
		schema = object{"type": "boolean"}
	case "float64":
		schema = object{"type": "number"}
	case "int32", "int64":
		schema = object{"type": "integer"}
	case "uint8", "uint32", "uint64":
		schema = object{"type": "integer", "minimum": 0}
	default:
		return object{"$ref": "#/$defs/" + name}
	}
	if words := tag.Get("enum"); words != "" {
		var enum []any
		for _, word := range strings.FieldsFunc(words, func(r rune) bool { return r == ',' || r == '=' }) {
			enum = append(enum, word)
		}
		schema = object{"enum": enum}
	}
	if low, high, ok := strings.Cut(tag.Get("range"), ".."); ok {
		schema["minimum"], schema["maximum"] = json.Number(low), json.Number(high)
	}
	return schema
}

// used returns the definitions that a schema refers to, directly or through others.
func used(schema any, defs object) object {
	found := object{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case object:
			for key, value := range v {
				if name, ok := value.(string); ok && key == "$ref" {
					name = strings.TrimPrefix(name, "#/$defs/")
					if _, seen := found[name]; !seen {
						found[name] = defs[name]
						walk(defs[name])
					}
				}
				walk(value)
			}
		case []any:
			for _, value := range v {
				walk(value)
			}
		}
	}
	walk(schema)
	return found
}
