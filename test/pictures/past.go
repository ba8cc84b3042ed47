package main

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"regexp"
	"time"
)

// pause is between the changes of a history, whose marks must not be one.
const pause = 4 * time.Second

// photographPast writes what chromium shows of the page of a history to a file, as PNG.
func (s *stage) photographPast(keepwatch, kubectl, picture string) {
	s.start(`ready in`, keepwatch, "serve", "--simulate", "--listen", "127.0.0.1:0", "--kubeconfig-out", "live")
	change := func(args ...string) {
		s.run(kubectl, append([]string{"--kubeconfig", "live"}, args...)...)
		s.do(func() error {
			select {
			case <-time.After(pause):
				return nil
			case <-s.ctx.Done():
				return s.ctx.Err()
			}
		})
	}
	change("create", "deployment", "web", "--image", "nginx:1.27", "--replicas", "3")
	s.start(`synced at`, keepwatch, "sync", "*", "-A", "--kubeconfig", "live", "--to", "sqlite:history.db")
	change("create", "deployment", "api", "--image", "api:2.0", "--replicas", "2")
	change("label", "pods", "-l", "app=web", "tier=front")
	change("set", "image", "deployment/web", "nginx=nginx:1.28")
	change("scale", "deployment/api", "--replicas", "5")
	change("set", "image", "deployment/api", "api=api:2.1")
	change("delete", "deployment", "web")

	s.start(`at/MOMENT`, keepwatch, "serve", "--history", "sqlite:history.db", "--listen", "127.0.0.1:0",
		"--kubeconfig-out", "history")
	address := s.start(`Starting to serve on (\S+)`, kubectl, "proxy", "--port", "0", "--kubeconfig", "history")
	page := "http://" + address + "/keepwatch/"
	shown := ""
	s.do(func() (err error) {
		shown, err = modified(s.ctx, page+"?type=pods&namespace=default&from=-40s")
		return err
	})
	s.photograph(picture, page+shown, 810)
}

// photograph writes what chromium shows of a page to a file, as PNG.
func (s *stage) photograph(picture, page string, height int) {
	s.run("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--user-data-dir="+s.dir,
		fmt.Sprintf("--window-size=960,%d", height), "--force-device-scale-factor=1.25", "--screenshot="+picture, page)
}

var modifiedMark = regexp.MustCompile(`<a href="([^"#]*)[^"]*" class="modified">`)

// modified returns the address of the first change on a page.
func modified(ctx context.Context, page string) (string, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	mark := modifiedMark.FindSubmatch(body)
	if mark == nil {
		return "", fmt.Errorf("the page has no change: %s", body)
	}
	return html.UnescapeString(string(mark[1])), nil
}
