package emit

import (
	"maps"
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/nvmlfab/nvmlfab/generator/model"
)

// abiFields renders the fields of nvmlDeviceGetFieldValues that had other numbers in some versions. Programs and drivers of
// such a version mean the field of that version, so a number follows the driver.
func abiFields(f *jen.File, in Input) {
	newest := fieldNumbers(in.Header)
	f.Comment(`FieldID is the number, in the newest version, of the field that had the number id in the version with that Version.Number;
id itself for a field that never had another number.`)
	f.Func().Id("FieldID").Params(jen.Id("version").Int(), jen.Id("id").Uint32()).Uint32().Block(
		jen.Switch(jen.Id("version")).BlockFunc(func(g *jen.Group) {
			var groups [][]jen.Code // versions with the same numbers share a case
			var tables []map[int64]int64
			for i, h := range in.Headers {
				moved := map[int64]int64{}
				for name, id := range fieldNumbers(h) {
					if now, ok := newest[name]; ok && now != id {
						moved[id] = now
					}
				}
				if len(moved) == 0 {
					continue
				}
				version := jen.Lit(in.Versions[i].Number)
				if at := slices.IndexFunc(tables, func(t map[int64]int64) bool { return maps.Equal(t, moved) }); at >= 0 {
					groups[at] = append(groups[at], version)
					continue
				}
				groups, tables = append(groups, []jen.Code{version}), append(tables, moved)
			}
			for i, versions := range groups {
				g.Case(versions...).Block(jen.Switch(jen.Id("id")).BlockFunc(func(g *jen.Group) {
					for _, id := range slices.Sorted(maps.Keys(tables[i])) {
						g.Case(jen.Lit(int(id))).Block(jen.Return(jen.Lit(int(tables[i][id]))))
					}
				}))
			}
		}),
		jen.Return(jen.Id("id")),
	)
}

// fieldNumbers are the numbers of a version's fields by name.
func fieldNumbers(h *model.Header) map[string]int64 {
	numbers := map[string]int64{}
	for _, c := range h.Constants {
		if strings.HasPrefix(c.Name, "NVML_FI_") && c.Name != "NVML_FI_MAX" && c.Text == nil {
			numbers[c.Name] = c.Int
		}
	}
	return numbers
}
