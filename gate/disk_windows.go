package gate

import (
	"math"

	"golang.org/x/sys/windows"
)

// freeBytes returns how many bytes the user may still write to the volume of a path.
// It may take long on a volume of another machine.
func freeBytes(path string) (int64, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, err
	}
	return int64(min(free, math.MaxInt64)), nil
}
