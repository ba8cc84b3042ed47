package proxy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/proxy"
	"github.com/keepwatch/keepwatch/test/peer"
)

// k9s is k9s of a developer in a terminal, with the favourites and the plugin of docs/personal.md.
type k9s struct {
	*developer
	socket, log string
	mayShow     []string // namespaces
}

func (d *developer) k9s(config *rest.Config) *k9s {
	d.Helper()
	dir := d.TempDir()
	k := &k9s{d, filepath.Join(dir, "tmux"), filepath.Join(dir, "k9s", "k9s.log"), slices.Clone(hers)}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	d.must(peer.WriteKubeconfig(kubeconfig, config)) // its cluster and its context are named test
	for name, content := range map[string]string{
		"k9s/config.yaml":                    "k9s:\n  skipLatestRevCheck: true\n  ui: {logoless: true, splashless: true}\n",
		"k9s/clusters/test/test/config.yaml": d.documented("k9s:"),
		"k9s/plugins.yaml":                   d.documented("plugins:"),
	} {
		file := filepath.Join(dir, name)
		d.must(os.MkdirAll(filepath.Dir(file), 0o755))
		d.must(os.WriteFile(file, []byte(content), 0o644))
	}
	d.must(os.Symlink(peer.Build(d, peer.Kubectl), filepath.Join(dir, "kubectl")))
	start := exec.Command("tmux", "-S", k.socket, "-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "24",
		peer.Build(d, peer.K9s))
	start.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig, "HOME="+dir, "LESS=",
		"LC_ALL=C.UTF-8")
	for _, kind := range []string{"CONFIG_HOME", "DATA_HOME", "STATE_HOME", "CACHE_HOME", "RUNTIME_DIR"} {
		start.Env = append(start.Env, "XDG_"+kind+"="+dir)
	}
	if out, err := start.CombinedOutput(); err != nil {
		d.Fatalf("tmux: %v %s", err, out)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(k.tmux("display-message", "-p", "#{pane_pid}")))
	d.must(err)
	d.Cleanup(func() {
		k.tmux("kill-server")
		_ = syscall.Kill(pid, syscall.SIGKILL)
		await.True(d, "k9s has ended", func() bool { return syscall.Kill(pid, 0) != nil })
	})
	return k
}

// documented returns the block of docs/personal.md that begins with a line.
func (d *developer) documented(first string) (block string) {
	d.Helper()
	page, err := os.ReadFile("../../../docs/personal.md")
	d.must(err)
	_, rest, found := strings.Cut(string(page), "\n    "+first+"\n")
	if !found {
		d.Fatalf("docs/personal.md has no block that begins with %q", first)
	}
	block = first + "\n"
	for line := range strings.Lines(rest) {
		if line, found = strings.CutPrefix(line, "    "); !found {
			break
		}
		block += line
	}
	return block
}

func (k *k9s) tmux(args ...string) string {
	out, _ := exec.Command("tmux", append([]string{"-S", k.socket}, args...)...).CombinedOutput()
	return string(out)
}

var objectOf = regexp.MustCompile(`(?:web|map)-(team-\d\d)`)

// screen waits until the screen is as wanted. No object of another namespace ever is on it.
func (k *k9s) screen(what string, is func(screen string) bool) {
	k.Helper()
	await.State(k, what, func() (bool, string) {
		screen := k.tmux("capture-pane", "-p")
		for _, object := range objectOf.FindAllStringSubmatch(screen, -1) {
			if !slices.Contains(k.mayShow, object[1]) {
				k.Fatalf("an object of %s is on the screen:\n%s", object[1], screen)
			}
		}
		return is(screen), screen
	})
}

// shows waits until all of some texts are on the screen.
func (k *k9s) shows(texts ...string) {
	k.Helper()
	k.screen(fmt.Sprintf("the screen has %q", texts), func(screen string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(screen, text) })
	})
}

func (k *k9s) command(text string) {
	k.Helper()
	k.tmux("send-keys", ":")
	k.shows("🐶>")
	k.tmux("send-keys", "-l", text)
	k.tmux("send-keys", "Enter")
}

// refuses waits until k9s refuses a command with an error, which its log has on one line, and returns to its page.
func (k *k9s) refuses(command, why string) {
	k.Helper()
	k.command(command)
	k.shows("Dismiss")
	log, err := os.ReadFile(k.log)
	k.must(err)
	if !strings.Contains(string(log), why) {
		k.Errorf("k9s does not say %s:\n%s", why, log)
	}
	k.tmux("send-keys", "Enter")
	k.screen("the error is dismissed", func(screen string) bool { return !strings.Contains(screen, "Dismiss") })
}

// deployment waits until the page of the deployments of a namespace has the one that there is.
func (k *k9s) deployment(namespace string) {
	k.Helper()
	k.shows("deployments("+namespace+")[1]", " web-"+namespace+" ")
}

// k9s of a user with three namespaces of forty shows the objects of one namespace at a time, with personal views and
// without: it asks the server before whether it may list. Favourites have a key each. kubectl in a plugin shows
// all of them, with personal views. A namespace that is granted is shown.
func TestPersonalK9s(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"tmux", "less"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s: k9s is NOT tested in personal views (make debian)", program)
		}
	}
	d := newDeveloper(t)
	config := d.front.config
	config.Personal = nil
	without, with := d.k9s(d.configOf(newFront(t, config))), d.k9s(d.through)
	for _, k := range []*k9s{without, with} {
		k.deployment("team-07")
		k.tmux("send-keys", "1")
		k.deployment("team-08")
		k.refuses("deploy all", `resource \"\":apps/v1/deployments in namespace \"\"`)
		k.refuses("namespaces", `resource \"\":\"v1/namespaces\"`)
		k.command("deploy team-31")
		k.deployment("team-31")
		k.tmux("send-keys", "V")
	}
	without.shows("Error from server (Forbidden): deployments.apps is forbidden")
	with.views(hers...)

	granted := append([]string{"team-00"}, hers...)
	d.grant("team-00")
	d.eventually("the proxy follows the grant", func() bool {
		return d.proxy("/apis/apps/v1/deployments").header.Get(proxy.PersonalHeader) == fmt.Sprintf("4/%d", d.all)
	})
	for _, k := range []*k9s{without, with} {
		k.mayShow = granted
		k.tmux("send-keys", "q") // less
		k.deployment("team-31")
		k.command("deploy team-00") // for the first time: k9s remembers for five minutes that it may not
		k.deployment("team-00")
	}
	with.tmux("send-keys", "V")
	with.views(granted...)
	with.tmux("send-keys", "q")
	for _, k := range []*k9s{without, with} {
		k.deployment("team-00")
		k.command("quit")
		await.True(t, "k9s ends", func() bool { return !strings.Contains(k.tmux("list-sessions"), "1 windows") })
	}
}

// views waits until kubectl shows the deployments of some namespaces.
func (k *k9s) views(namespaces ...string) {
	k.Helper()
	texts := []string{fmt.Sprintf("personal view: %d of %d namespaces", len(namespaces), k.all), "(END)"}
	for _, namespace := range namespaces {
		texts = append(texts, fmt.Sprintf("\n%s     web-%s ", namespace, namespace))
	}
	k.shows(texts...)
}
