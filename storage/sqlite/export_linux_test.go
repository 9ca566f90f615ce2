package sqlite

var (
	MountType    = mountType
	IsMountPoint = isMountPoint
	Magics       = magics
	SharedType   = sharedType
)

func StatFileSystem(path string) (name string, free int64, err error) {
	fs, err := statFileSystem(path)
	return fs.name, fs.free, err
}
