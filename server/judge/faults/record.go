package faults

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// The files of a record.
const (
	planFile       = "plan.yaml"
	transcriptFile = "transcript.jsonl"
)

// recorder writes entries to a file, one JSON object a line, when their requests end. Its owner
// serializes calls.
type recorder struct {
	file *os.File
	err  error // the first one
}

// newRecorder writes the plan with its seed to a folder, and begins a transcript in it, which only its owner may read:
// addresses of requests may have secrets, such as the command of an exec. It refuses a folder that has one.
func newRecorder(dir string, plan Plan) (*recorder, error) {
	file, err := os.OpenFile(filepath.Join(dir, transcriptFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(plan)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, planFile), text, 0o644)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return &recorder{file: file}, nil
}

// write writes an entry. After an error nothing more is written.
func (r *recorder) write(e *Entry) {
	if r.err != nil {
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	r.err = err
}

func (r *recorder) close() error {
	if r.file == nil {
		return nil
	}
	err := errors.Join(r.err, r.file.Close())
	r.file = nil
	return err
}

// ReadTranscript reads the transcript of a record, in the order in which requests ended. A line that a proxy
// was killed while writing is left out.
func ReadTranscript(dir string) ([]Entry, error) {
	file, err := os.Open(filepath.Join(dir, transcriptFile))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var entries []Entry
	for lines, n := bufio.NewReader(file), 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return entries, nil
		} else if err != nil {
			return nil, err
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", file.Name(), n, err)
		}
		entries = append(entries, e)
	}
}
