package judges

import (
	"context"
	"io"
	"os/exec"
	"time"
)

// disturbanceEnd bounds the wait for a disturbance that was interrupted.
const disturbanceEnd = 5 * time.Second

// disturbance returns the function that runs the command of --disturb. When it is interrupted, what the command has
// started is terminated too, and then killed.
func disturbance(command string, output io.Writer) func(context.Context) error {
	return func(ctx context.Context) error {
		shell := exec.CommandContext(ctx, "sh", "-c", command)
		shell.Stdout, shell.Stderr = output, output
		shell.WaitDelay = disturbanceEnd
		ownGroup(shell)
		err := shell.Run()
		if ctx.Err() != nil && shell.Process != nil {
			killGroup(shell.Process)
		}
		return err
	}
}
