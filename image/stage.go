package main

import (
	"bytes"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// dockerfile is a parsed Dockerfile for one architecture, and the folder with the files that it copies.
type dockerfile struct {
	context string
	arch    string
	stages  map[string]instructions.Stage
	lex     *shell.Lex
}

func parseDockerfile(text []byte, context, arch string) (*dockerfile, error) {
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	stages, _, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		return nil, err
	}
	d := &dockerfile{context: context, arch: arch, stages: map[string]instructions.Stage{},
		lex: shell.NewLex(parsed.EscapeToken)}
	for _, stage := range stages {
		d.stages[stage.Name] = stage
	}
	return d, nil
}

// contents are what an image is made of.
type contents struct {
	files  []file
	config v1.Config
}

// file is a file of an image.
type file struct {
	source string // on this machine
	path   string // absolute
	mode   int64
}

// evaluate returns the contents of a stage.
func (d *dockerfile) evaluate(name string) (contents, error) {
	stage, ok := d.stages[name]
	if !ok {
		return contents{}, fmt.Errorf("the Dockerfile has no stage %q", name)
	}
	var c contents
	if stage.BaseName != "scratch" {
		var err error
		if c, err = d.evaluate(stage.BaseName); err != nil {
			return c, fmt.Errorf("stage %q: %w", name, err)
		}
	}
	for _, command := range stage.Commands {
		if err := d.apply(&c, command); err != nil {
			return c, fmt.Errorf("stage %q: %s: %w", name, command.Name(), err)
		}
	}
	return c, nil
}

func (d *dockerfile) apply(c *contents, command instructions.Command) error {
	if words, ok := command.(instructions.SupportsSingleWordExpansion); ok {
		if err := words.Expand(d.expand); err != nil {
			return err
		}
	}
	switch command := command.(type) {
	case *instructions.ArgCommand: // expand has the only one
	case *instructions.CopyCommand:
		return d.copy(c, command)
	case *instructions.EnvCommand:
		for _, e := range command.Env {
			c.config.Env = append(c.config.Env, e.Key+"="+e.Value)
		}
	case *instructions.LabelCommand:
		if c.config.Labels == nil {
			c.config.Labels = map[string]string{}
		}
		for _, l := range command.Labels {
			c.config.Labels[l.Key] = l.Value
		}
	case *instructions.UserCommand:
		c.config.User = command.User
	case *instructions.EntrypointCommand:
		if command.PrependShell {
			return fmt.Errorf("the image has no shell")
		}
		c.config.Entrypoint = command.CmdLine
	default:
		return fmt.Errorf("this instruction needs docker build")
	}
	return nil
}

// expand replaces the variable TARGETARCH.
func (d *dockerfile) expand(word string) (string, error) {
	expanded, missing, err := d.lex.ProcessWord(word, shell.EnvsFromSlice([]string{"TARGETARCH=" + d.arch}))
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%q has a variable other than TARGETARCH", word)
	}
	return expanded, err
}

// copy adds a file that another stage builds.
func (d *dockerfile) copy(c *contents, command *instructions.CopyCommand) error {
	from, ok := d.stages[command.From]
	if !ok || len(command.SourcePaths) != 1 || len(command.SourceContents) > 0 || command.Chown != "" ||
		len(command.ExcludePatterns) > 0 ||
		strings.HasSuffix(command.DestPath, "/") || !path.IsAbs(command.DestPath) {
		return fmt.Errorf("give one file of another stage, and its absolute path")
	}
	mode, err := strconv.ParseInt(command.Chmod, 8, 64)
	if err != nil {
		return fmt.Errorf("--chmod: %w", err)
	}
	built, ok := strings.CutPrefix(command.SourcePaths[0], workdir(from)+"/")
	if !ok {
		return fmt.Errorf("%s is not below %s", command.SourcePaths[0], workdir(from))
	}
	c.files = append(c.files, file{filepath.Join(d.context, built), path.Clean(command.DestPath), mode})
	return nil
}

func workdir(stage instructions.Stage) string {
	dir := "/"
	for _, command := range stage.Commands {
		if w, ok := command.(*instructions.WorkdirCommand); ok {
			dir = w.Path
		}
	}
	return dir
}
