// Package chart holds the helm chart; its tests render it without helm, by the few functions that it uses.
package chart

import (
	"encoding/json"
	"flag"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"github.com/nvmlfab/nvmlfab/kubernetes/api"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the plain manifests anew")

// render renders a template with values over the default ones.
func render(t *testing.T, file string, over map[string]any) string {
	t.Helper()
	var values, about map[string]any
	for name, into := range map[string]*map[string]any{"values.yaml": &values, "Chart.yaml": &about} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, into))
	}
	for key, value := range over {
		require.Contains(t, values, key)
		values[key] = value
	}
	indent := func(n int, text string) string {
		return "\n" + strings.Repeat(" ", n) + strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", n))
	}
	tmpl, err := template.New(filepath.Base(file)).Funcs(template.FuncMap{
		"nindent": indent, "dir": path.Dir,
		"quote":  func(v any) string { text, _ := yaml.Marshal(v); return `"` + strings.TrimSpace(string(text)) + `"` },
		"toYaml": func(v any) string { text, _ := yaml.Marshal(v); return strings.TrimSuffix(string(text), "\n") },
		"default": func(other, v any) any {
			if v == nil || v == "" {
				return other
			}
			return v
		},
	}).ParseFiles(file)
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, tmpl.Execute(&out, map[string]any{
		"Values": values, "Chart": map[string]any{"AppVersion": about["appVersion"]}, "Release": map[string]any{"Namespace": "nvmlfab"}, "Files": files{},
	}))
	return out.String()
}

// files are those of the chart.
type files struct{}

func (files) Get(name string) (string, error) {
	text, err := os.ReadFile(name)
	return string(text), err
}

// TestOptional: what only some values ask for is there with them, and not without.
func TestOptional(t *testing.T) {
	for _, name := range []string{"restart", "dashboard"} {
		assert.Empty(t, strings.TrimSpace(render(t, "templates/"+name+".yaml", nil)), name)
	}
	assert.Empty(t, strings.TrimSpace(render(t, "templates/uninstall.yaml", map[string]any{"cleanup": false})))

	var job batchv1.Job
	text := render(t, "templates/uninstall.yaml", nil)
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &job), text)
	assert.Equal(t, "pre-delete", job.Annotations["helm.sh/hook"])
	assert.Equal(t, []string{"--namespace=nvmlfab", "--wait=5m", "retire"}, job.Spec.Template.Spec.Containers[0].Args)

	over := map[string]any{"restart": map[string]any{"namespace": "nvidia", "selector": "app=plugin"}}
	parts := strings.Split(render(t, "templates/restart.yaml", over), "\n---\n")
	require.Len(t, parts, 2)
	var role rbacv1.Role
	require.NoError(t, yaml.UnmarshalStrict([]byte(parts[0]), &role), parts[0])
	assert.Equal(t, "nvidia", role.Namespace)
	assert.Equal(t, []string{"list", "delete"}, role.Rules[0].Verbs)
	var binding rbacv1.RoleBinding
	require.NoError(t, yaml.UnmarshalStrict([]byte(parts[1]), &binding), parts[1])
	assert.Equal(t, "nvmlfab", binding.Subjects[0].Namespace)
	assert.Contains(t, render(t, "templates/agent.yaml", over), "- --restart=nvidia/app=plugin\n")

	var config corev1.ConfigMap
	text = render(t, "templates/dashboard.yaml", map[string]any{"dashboard": true})
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &config), text)
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(config.Data["nvmlfab.json"]), &board))
	agent, err := os.ReadFile("../agent/metrics.go")
	require.NoError(t, err)
	assert.NotEmpty(t, board.Panels)
	for _, p := range board.Panels {
		for _, name := range regexp.MustCompile("DCGM_[A-Z_]+").FindAllString(p.Targets[0].Expr, -1) {
			assert.Contains(t, string(agent), `"`+name+`"`, "%s: the agent has no such metric", p.Title)
		}
	}
}

// TestManifests: the plain manifests are the chart with its default values, after the definition of GPUFault and the namespace.
func TestManifests(t *testing.T) {
	crd, err := os.ReadFile("crds/gpufaults.yaml")
	require.NoError(t, err)
	parts := []string{strings.TrimSpace(string(crd)), "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: nvmlfab"}
	for _, name := range []string{"rbac", "config", "agent"} {
		parts = append(parts, strings.TrimSpace(render(t, "templates/"+name+".yaml", nil)))
	}
	text := "# The chart in kubernetes/chart with its default values, for kubectl apply.\n" + strings.Join(parts, "\n---\n") + "\n"
	const file = "../manifests/nvmlfab.yaml"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	is, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, text, string(is), "run go test ./chart -update in kubernetes")
	for _, part := range parts {
		for _, one := range strings.Split(part, "\n---\n") {
			var object map[string]any
			require.NoError(t, yaml.UnmarshalStrict([]byte(one), &object), one)
		}
	}
}

// TestValues: pools and profiles reach the agent's configuration, and switches its arguments and mounts.
func TestValues(t *testing.T) {
	pools := []any{map[string]any{"name": "small", "selector": map[string]any{"matchLabels": map[string]any{"gpus": "small"}}, "profile": "mine", "count": 2, "mig": "thirds"}}
	var config corev1.ConfigMap
	text := render(t, "templates/config.yaml", map[string]any{"pools": pools, "migConfigs": "version: v1\nmig-configs: {}\n", "profiles": map[string]any{"mine": "extends: t4\nsystem: {driver_version: 550.90.07}\n"}})
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &config), text)
	parsed, err := api.ParseConfig(config.Data)
	require.NoError(t, err)
	choice, err := parsed.Choose(map[string]string{"gpus": "small"})
	require.NoError(t, err)
	assert.Equal(t, "thirds", choice.MIG)
	assert.Equal(t, "version: v1\nmig-configs: {}\n", config.Data[api.MIGKey])
	board, err := choice.Base.With(choice.Layers...)
	require.NoError(t, err)
	assert.Len(t, board.Devices, 2)
	assert.Equal(t, "550.90.07", board.System.DriverVersion.Value)
	choice, err = parsed.Choose(nil)
	require.NoError(t, err)
	assert.Equal(t, "h100", choice.Name)

	var none corev1.ConfigMap
	require.NoError(t, yaml.UnmarshalStrict([]byte(render(t, "templates/config.yaml", map[string]any{"default": nil})), &none))
	parsed, err = api.ParseConfig(none.Data)
	require.NoError(t, err)
	choice, err = parsed.Choose(nil)
	require.NoError(t, err)
	assert.Nil(t, choice)

	for _, on := range []bool{true, false} {
		over := map[string]any{"devicePlugin": on, "driverLink": "", "features": ""}
		if on {
			over["driverLink"], over["features"] = "/run/nvidia/driver", "/etc/features.d"
		}
		var set appsv1.DaemonSet
		text := render(t, "templates/agent.yaml", over)
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), &set), text)
		pod := set.Spec.Template.Spec
		mounts, volumes := map[string]string{}, map[string]string{}
		for _, m := range pod.Containers[0].VolumeMounts {
			mounts[m.Name] = m.MountPath
		}
		for _, v := range pod.Volumes {
			volumes[v.Name] = v.HostPath.Path
		}
		assert.Equal(t, mounts, volumes, "paths are the same for the agent as for the node")
		assert.Equal(t, map[bool]int{true: 6, false: 3}[on], len(mounts))
		assert.Equal(t, on, strings.Contains(strings.Join(pod.Containers[0].Args, " "), "--device-plugin"))
	}
}
