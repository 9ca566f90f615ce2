//go:build !linux

package sqlite

// mountedAlone cannot know here.
func mountedAlone(string) bool { return false }
