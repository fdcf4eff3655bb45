package containerd

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// dialect is how a range of containerd releases wants its configuration.
type dialect struct {
	// version of the configuration file.
	version int
	// binDirs: the CNI plug-ins' folders are the list bin_dirs, which came with containerd 2.2. Its predecessor bin_dir is
	// deprecated from there on and ignored from 2.4 on.
	binDirs bool
}

// dialectOf returns the dialect of a release, such as v2.2.0. Releases after the last one that is known here are taken to
// keep accepting what the last one accepts, as containerd migrates older versions of its configuration by itself.
func dialectOf(release string) (dialect, error) {
	v, err := version.ParseSemantic(release)
	if err != nil {
		return dialect{}, fmt.Errorf("containerd's version %q: %w", release, err)
	}
	switch {
	case v.Major() == 1 && v.Minor() == 7:
		return dialect{version: 2}, nil
	case v.Major() == 2 && v.Minor() < 2:
		return dialect{version: 3}, nil
	case v.Major() == 2:
		return dialect{version: 3, binDirs: true}, nil
	default:
		return dialect{}, fmt.Errorf("containerd %s is not supported: 1.7 and 2.x are", release)
	}
}
