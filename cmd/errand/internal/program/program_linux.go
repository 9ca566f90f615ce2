package program

import "syscall"

// dieWithUs has the kernel kill a program when the thread that starts it ends.
func dieWithUs(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
