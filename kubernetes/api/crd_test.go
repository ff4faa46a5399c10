package api

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

type schemaOf struct {
	Type                 string
	Description          string
	Properties           map[string]*schemaOf
	Items                *schemaOf
	AdditionalProperties *schemaOf
	Format               string
	IntOrString          bool `json:"x-kubernetes-int-or-string"`
}

// TestCRD: the definition that people install has the fields of the Go types, with their types, and no others.
func TestCRD(t *testing.T) {
	text, err := os.ReadFile("../chart/crds/gpufaults.yaml")
	require.NoError(t, err)
	var crd struct {
		Metadata struct{ Name string }
		Spec     struct {
			Group, Scope string
			Names        struct{ Kind, Plural string }
			Versions     []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema *schemaOf }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &crd))
	assert.Equal(t, GPUFaults.Resource+"."+Group, crd.Metadata.Name)
	assert.Equal(t, []string{Group, "Cluster", "GPUFault", GPUFaults.Resource}, []string{crd.Spec.Group, crd.Spec.Scope, crd.Spec.Names.Kind, crd.Spec.Names.Plural})
	require.Len(t, crd.Spec.Versions, 1)
	assert.Equal(t, Version, crd.Spec.Versions[0].Name)
	top := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	compare(t, "spec", top.Properties["spec"], reflect.TypeFor[GPUFaultSpec]())
	compare(t, "status", top.Properties["status"], reflect.TypeFor[GPUFaultStatus]())
}

func compare(t *testing.T, name string, s *schemaOf, of reflect.Type) {
	t.Helper()
	require.NotNil(t, s, "the definition lacks %s", name)
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch of {
	case reflect.TypeFor[metav1.Duration]():
		assert.Equal(t, "string", s.Type, name)
		return
	case reflect.TypeFor[metav1.Time]():
		assert.Equal(t, "date-time", s.Format, name)
		return
	case reflect.TypeFor[intstr.IntOrString]():
		assert.True(t, s.IntOrString, name)
		return
	}
	switch of.Kind() {
	case reflect.Struct:
		assert.Equal(t, "object", s.Type, name)
		known := map[string]bool{}
		for i := range of.NumField() {
			field, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			known[field] = true
			compare(t, name+"."+field, s.Properties[field], of.Field(i).Type)
		}
		for field := range s.Properties {
			assert.True(t, known[field], "the Go type lacks %s.%s", name, field)
		}
	case reflect.Map:
		assert.Equal(t, "object", s.Type, name)
		compare(t, name+"{}", s.AdditionalProperties, of.Elem())
	case reflect.Slice:
		assert.Equal(t, "array", s.Type, name)
		compare(t, name+"[]", s.Items, of.Elem())
	case reflect.Int64:
		assert.Equal(t, "integer", s.Type, name)
	case reflect.String:
		assert.Equal(t, "string", s.Type, name)
	default:
		t.Errorf("%s: %s is not known here", name, of)
	}
}
