package broker

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// PasswordFile is the parameter of an address that names a file with the password.
const PasswordFile = "password-file"

// Credentials are a user, and the password that is in the address, in a file, or known to a function.
type Credentials struct {
	User     string
	password string
	file     string
	ask      func() (string, error) // nil: password or file
}

// Credentials returns those of the address, or nil if it has no user. If ask is not nil, it returns the password. It
// returns an error for a file that cannot be read, and for one that is empty.
func (a Address) Credentials(ask func() (string, error)) (*Credentials, error) {
	file := a.Parameter(PasswordFile)
	if a.User == nil {
		if file != "" {
			return nil, fmt.Errorf("the address has %s, and no user: give %s://USER@HOST", PasswordFile, a.Scheme)
		}
		if ask != nil {
			return nil, fmt.Errorf("the options have a password, and the address no user: give %s://USER@HOST", a.Scheme)
		}
		return nil, nil
	}
	c := &Credentials{User: a.User.Username(), file: file, ask: ask}
	c.password, _ = a.User.Password()
	if c.password != "" && file != "" {
		return nil, fmt.Errorf("the address has a password, and %s: give one of them", PasswordFile)
	}
	if ask != nil && (c.password != "" || file != "") {
		return nil, errors.New("the address has a password, and the options have one: give one of them")
	}
	if file == "" {
		return c, nil
	}
	_, err := c.Password()
	return c, err
}

// Empty reports whether the address has neither a password nor a file with one.
func (c *Credentials) Empty() bool { return c.password == "" && c.file == "" }

// String returns the user.
func (c *Credentials) String() string { return c.User }

// Password returns the password that is to be sent now: a file is read each time, so that the password can be changed
// while the sink is open. A line break at the end of the file does not count.
func (c *Credentials) Password() (string, error) {
	if c.ask != nil {
		return c.ask()
	}
	if c.file == "" {
		return c.password, nil
	}
	text, err := os.ReadFile(c.file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", PasswordFile, err)
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if password == "" {
		return "", errors.New(PasswordFile + ": " + c.file + " is empty")
	}
	return password, nil
}
