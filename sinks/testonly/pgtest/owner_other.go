//go:build !linux

package pgtest

import "syscall"

func owner(string) (*syscall.SysProcAttr, error) { return &syscall.SysProcAttr{}, nil }

func killGroup(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }
