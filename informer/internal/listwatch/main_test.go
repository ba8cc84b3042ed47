package listwatch

import (
	"os"
	"testing"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

func TestMain(m *testing.M) { os.Exit(await.Tests(m)) }
