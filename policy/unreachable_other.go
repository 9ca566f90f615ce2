//go:build !windows

package policy

import "syscall"

// networkErrors are about this machine: it has no network.
var networkErrors = []error{syscall.ENETUNREACH, syscall.ENETDOWN}

// hostErrors are about one host, which cannot be reached.
var hostErrors = []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.EHOSTDOWN}
