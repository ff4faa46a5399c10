package tests

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// TestWorkflows: actionlint finds no mistake in the workflows, nor in how they use the action.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	lint := filepath.Join(t.TempDir(), "actionlint")
	run(t, []string{"GOBIN=" + filepath.Dir(lint)}, "go", "install", "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12").succeeds(t)
	runIn(t, t.TempDir(), nil, lint, append([]string{"-no-color", "-shellcheck="}, files...)...).succeeds(t)
	wrong := filepath.Join(t.TempDir(), "wrong.yml")
	require.NoError(t, os.WriteFile(wrong, []byte("on: push\njobs: {a: {runs-on: ubuntu-24.04, steps: [{run: 'echo ${{ matrix.x }}'}]}}\n"), 0o644))
	assert.NotZero(t, run(t, nil, lint, wrong).code, "it finds mistakes")
}

// mirror is a folder with the release of these tests and its hash, and the address of that folder.
func mirror(t *testing.T) (dir, address string) {
	t.Helper()
	dir = t.TempDir()
	name := releaseName + ".tar.gz"
	require.NoError(t, os.Symlink(release(t, name), filepath.Join(dir, name)))
	text, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "SHA256SUMS"), fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(text), name), 0o644))
	return dir, "file://" + dir
}

// TestSetupAction runs the action's steps as a runner does, and then a step that uses the GPUs.
func TestSetupAction(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, ".github/actions/setup-nvmlfab/action.yml"))
	require.NoError(t, err)
	var action struct {
		Inputs  map[string]struct{ Default string }
		Outputs map[string]struct{ Value string }
		Runs    struct {
			Steps []struct {
				Run string
				Env map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &action))
	require.Len(t, action.Runs.Steps, 1)
	dir, source := mirror(t)
	job := t.TempDir()
	file := func(name string) string { return filepath.Join(job, name) }
	inputs := map[string]string{"inputs.profile": "gb200", "inputs.gpus": "2", "inputs.version": "v0.0.0-test", "inputs.source": source,
		"github.action_ref": "v9.9.9"}
	runner := []string{"RUNNER_TEMP=" + job, "GITHUB_ACTION_PATH=" + filepath.Join(root, ".github/actions/setup-nvmlfab"),
		"GITHUB_ENV=" + file("env"), "GITHUB_PATH=" + file("path"), "GITHUB_OUTPUT=" + file("output")}
	step := action.Runs.Steps[0]
	setup := func() outcome {
		env := runner
		for name, value := range step.Env {
			input := strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(value, "${{"), "}}"))
			require.Contains(t, inputs, input)
			env = append(env, name+"="+inputs[input])
		}
		return runIn(t, job, env, "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step.Run)
	}
	out := setup().succeeds(t)
	assert.Contains(t, out.stderr, "nvmlfab 0.0.0-test")

	// What the runner makes of the files for the steps that follow.
	path := lines(t, file("path"))
	require.Len(t, path, 1)
	env := append(lines(t, file("env")), "PATH="+path[0]+":"+os.Getenv("PATH"))
	assert.Equal(t, []string{"path=" + filepath.Dir(path[0])}, lines(t, file("output")))
	next := func(script string) outcome {
		return runIn(t, job, append(env, "SMI="+fetched(t, "nvidia-smi-550", "nvidia-smi")), "sh", "-c", script)
	}
	assert.Len(t, next(`"$SMI" -L`).succeeds(t).lines(), 2)
	assert.Equal(t, []string{"NVIDIA GB200", "NVIDIA GB200"}, next(`nvmlfab run -- "$SMI" --query-gpu=name --format=csv,noheader`).succeeds(t).lines())
	next("nvmlfab fail --gpu 1 lost").succeeds(t)
	assert.Contains(t, next(`"$SMI" -L`).stdout, "GPU is lost")

	for input, c := range map[string]struct{ value, says string }{
		"inputs.profile": {"h1000", `nvmlfab: `},
		"inputs.gpus":    {"two", `--gpus wants a number, not "two"`},
		"inputs.version": {"7.0.0", "nvmlfab-7.0.0-linux-amd64.tar.gz cannot be fetched"},
	} {
		before := inputs[input]
		inputs[input] = c.value
		failed := setup()
		assert.NotZero(t, failed.code, input)
		assert.Contains(t, failed.stderr, c.says)
		inputs[input] = before
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "SHA256SUMS"), fmt.Appendf(nil, "%064d  %s.tar.gz\n", 0, releaseName), 0o644))
	failed := setup()
	assert.NotZero(t, failed.code)
	assert.Contains(t, failed.stderr, "is not what SHA256SUMS says")
}

// lines are the lines of a file.
func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// TestSetupGitLab runs the commands of the job that docs/ci.md shows, with the release and the script of this tree.
func TestSetupGitLab(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs/ci.md"))
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	require.Len(t, blocks, 2)
	var file struct {
		Test struct {
			Variables    map[string]string
			BeforeScript []string `yaml:"before_script"`
			Script       []string
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(blocks[1][1]))
	require.NoError(t, decoder.Decode(&file))
	job := file.Test
	require.Len(t, job.BeforeScript, 3)
	require.Equal(t, []string{"nvmlfab run -- ./monitor --once"}, job.Script)

	dir := t.TempDir()
	_, source := mirror(t)
	writeProgram(t, filepath.Join(dir, "monitor"), []byte("#!/bin/sh\necho $1; exec "+fetched(t, "nvidia-smi-550", "nvidia-smi")+" -L\n"))
	// The first line installs curl, and the second one fetches the script: that of this tree is taken.
	require.Contains(t, job.BeforeScript[1], "/.github/actions/setup-nvmlfab/setup.sh")
	script, err := os.ReadFile(filepath.Join(root, ".github/actions/setup-nvmlfab/setup.sh"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "setup.sh"), script, 0o644))
	setup := strings.Replace(job.BeforeScript[2], `"$NVMLFAB_VERSION"`, `"$NVMLFAB_VERSION" --source `+source, 1)
	out := runIn(t, dir, []string{"NVMLFAB_VERSION=0.0.0-test"}, "bash", "-eo", "pipefail", "-c", setup+"\n"+job.Script[0]).succeeds(t)
	assert.Regexp(t, `^--once\nGPU 0: Tesla T4 .*\nGPU 1: Tesla T4 .*\n$`, out.stdout)
}

// TestCollectRelease: what a release on GitHub has is named as GitHub names it, and its hashes are those of the files.
func TestCollectRelease(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	for _, dir := range []string{".github", "dist"} {
		require.NoError(t, os.Mkdir(filepath.Join(tree, dir), 0o755))
	}
	script, err := os.ReadFile(filepath.Join(root, ".github/collect-release.sh"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(tree, ".github/collect-release.sh"), script, 0o644))
	collect := func() outcome {
		return runIn(t, tree, nil, "bash", ".github/collect-release.sh", filepath.Join(tree, "assets"))
	}
	assert.Contains(t, collect().stderr, "there is no release in dist")
	tarball := release(t, releaseName+".tar.gz")
	require.NoError(t, os.Symlink(tarball, filepath.Join(tree, "dist", filepath.Base(tarball))))
	require.NoError(t, os.WriteFile(filepath.Join(tree, "dist/nvmlfab_0.0.0~test_amd64.deb"), []byte("x"), 0o644))
	collect().succeeds(t)
	assets := filepath.Join(tree, "assets")
	runIn(t, assets, nil, "sha256sum", "-c", "--quiet", "SHA256SUMS").succeeds(t)
	var names []string
	for _, line := range lines(t, filepath.Join(assets, "SHA256SUMS")) {
		names = append(names, strings.Fields(line)[1])
	}
	assert.Equal(t, []string{releaseName + ".spdx.json", releaseName + ".tar.gz", "nvmlfab_0.0.0.test_amd64.deb"}, names)
}
