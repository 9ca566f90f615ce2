package host

import "testing"

func TestMountType(t *testing.T) {
	const mounts = `22 28 0:21 / /proc rw,nosuid - proc proc rw
28 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 28 0:52 / /mnt/far rw shared:9 master:2 - fuse.sshfs ada@example.org:/ rw
41 28 259:70000 / /mnt/large\\040disk rw - xfs /dev/nvme0n1p1 rw
`
	dev := func(major, minor uint64) uint64 { // as glibc's makedev
		return major&0xfff<<8 | major&^0xfff<<32 | minor&0xff | minor&^0xff<<12
	}
	for want, number := range map[string]uint64{
		"ext4": dev(254, 0), "fuse.sshfs": dev(0, 52), "xfs": dev(259, 70000), "proc": dev(0, 21), "": dev(7, 7),
	} {
		if got := mountType(mounts, number); got != want {
			t.Errorf("device %#x: %q, want %q", number, got, want)
		}
	}
}

// What the system says is something, and of the magic numbers each is shared.
func TestStatFS(t *testing.T) {
	fs, err := StatFS(t.TempDir())
	if err != nil || fs.Name == "" || fs.Free <= 0 {
		t.Errorf("%+v: %v, want a type and free bytes", fs, err)
	}
	for number, name := range magics {
		if !(FileSystem{Name: name}).Shared() {
			t.Errorf("%#x is %q, which is not shared", number, name)
		}
	}
}

// What is free on a disk is known without the list of mounts.
func TestRoom(t *testing.T) {
	if n, ok := Room(t.TempDir()); !ok || n <= 0 {
		t.Errorf("%d, %t: want free bytes", n, ok)
	}
	if n, ok := Room("/no/such/path"); ok || n != 0 {
		t.Errorf("%d, %t: want none", n, ok)
	}
	if n := testing.AllocsPerRun(10, func() { Room("/") }); n > 5 {
		t.Errorf("%v allocations: does it read the list of mounts?", n)
	}
}

func TestIsMountPoint(t *testing.T) {
	const mounts = `28 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
41 28 254:0 /srv/jobs.db /app/my\040jobs.db rw - ext4 /dev/vda rw
`
	for path, want := range map[string]bool{"/app/my jobs.db": true, "/app": false, "/srv/jobs.db": false} {
		if got := isMountPoint(mounts, path); got != want {
			t.Errorf("%s: %t, want %t", path, got, want)
		}
	}
}

// The name of the boot is read once: it is asked for with each job that runs.
func TestBootID_IsReadOnce(t *testing.T) {
	if BootID() == "" {
		t.Error("the boot has no name")
	}
	if n := testing.AllocsPerRun(100, func() { _ = BootID() }); n > 0 {
		t.Errorf("a further call allocates %v times, want none", n)
	}
}
