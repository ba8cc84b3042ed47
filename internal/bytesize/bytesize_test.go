package bytesize

import "testing"

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "512Mi": 512 << 20, "2Gi": 2 << 30, "512M": 512_000_000, "64k": 64_000, "1e3": 1000, "0.5Ki": 512, "1000m": 1,
		"512m": 0, "0.5": 0, "1.0001": 0, "100n": 0, "0": 0, "-1Gi": 0, "": 0, "big": 0, "1 Gi": 0, "100E": 0,
	} {
		size, err := Parse(text)
		if size != want || (err == nil) != (want > 0) {
			t.Errorf("%q is %d, %v, want %d", text, size, err, want)
		}
	}
}

func TestFlag(t *testing.T) {
	var size Size
	if size.String() != "" {
		t.Errorf("no value is %q", size.String())
	}
	if err := size.Set("2048Mi"); err != nil || size != 2<<30 || size.String() != "2Gi" {
		t.Errorf("the flag is %v, %v", size.String(), err)
	}
}
