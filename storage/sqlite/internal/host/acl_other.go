//go:build unix && !linux

package host

// hasACL returns false: only Linux is asked.
func hasACL(string) bool { return false }
