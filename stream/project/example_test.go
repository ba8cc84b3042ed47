package project_test

import (
	"fmt"

	"github.com/keepwatch/keepwatch/stream/project"
)

func Example() {
	p, err := project.New(project.Options{
		Fields: []string{"{.spec.containers[*].image}", "data"},
		Redact: []string{"data.password"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := p.Apply(
		[]byte(`{"kind":"Thing","metadata":{"name":"a","labels":{"x":"y"}},"data":{"user":"u","password":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`))
	fmt.Println(string(text), err)
	// Output: {"data":{"password":"REDACTED","user":"u"},"kind":"Thing","metadata":{"name":"a"},"spec":{"containers":[{"image":"i"}]}} <nil>
}
