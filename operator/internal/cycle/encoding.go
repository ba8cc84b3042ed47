package cycle

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Progress is stored as JSON, compressed if it is long: as base64 of gzip, which cannot begin with a brace. The
// annotations of an object have 256 KiB together.
const (
	compressedFrom = 16 << 10
	maxDecoded     = 16 << 20 // ten times what etcd accepts as an object
)

// encode returns a decoded JSON value as it is stored.
func encode(value any) string {
	text := encodeJSON(value)
	if len(text) < compressedFrom {
		return string(text)
	}
	var compressed bytes.Buffer
	into := gzip.NewWriter(&compressed)
	_, err := into.Write(text)
	if closed := into.Close(); err != nil || closed != nil {
		panic(fmt.Sprintf("cycle: memory cannot be written: %v, %v", err, closed))
	}
	return base64.StdEncoding.EncodeToString(compressed.Bytes())
}

func encodeJSON(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("cycle: a decoded JSON value cannot be encoded: %v", err))
	}
	return text
}

// decode reads a stored value into a pointer.
func decode(text string, into any) error {
	plain := []byte(text)
	if text != "" && !strings.HasPrefix(text, "{") && text != "null" {
		compressed, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return err
		}
		from, err := gzip.NewReader(bytes.NewReader(compressed))
		if err != nil {
			return err
		}
		if plain, err = io.ReadAll(io.LimitReader(from, maxDecoded+1)); err != nil {
			return err
		}
		if len(plain) > maxDecoded {
			return fmt.Errorf("it has more than %d MiB", maxDecoded>>20)
		}
	}
	return utiljson.Unmarshal(plain, into)
}
