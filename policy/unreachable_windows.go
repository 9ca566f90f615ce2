package policy

import "syscall"

// networkErrors are about this machine: it has no network. Windows returns the
// numbers of Winsock, which package syscall does not name. The names that are the
// same on all systems have numbers of Go's own here, which Windows never returns;
// other packages may.
var networkErrors = []error{
	syscall.Errno(10050), // WSAENETDOWN
	syscall.Errno(10051), // WSAENETUNREACH
	syscall.ENETUNREACH, syscall.ENETDOWN,
}

// hostErrors are about one host, which cannot be reached.
var hostErrors = []error{
	syscall.Errno(10061), // WSAECONNREFUSED
	syscall.Errno(10064), // WSAEHOSTDOWN
	syscall.Errno(10065), // WSAEHOSTUNREACH
	syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.EHOSTDOWN,
}
