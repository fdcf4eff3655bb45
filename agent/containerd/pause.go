package containerd

import (
	"fmt"
	"strconv"
	"strings"
)

// defaultPauseImage is an index of images for Linux and for Windows builds 17763, 20348 and 26100 (since 3.10.2), from which
// containerd takes the one that fits: https://github.com/kubernetes/kubernetes/blob/master/build/pause/CHANGELOG.md.
//
// It is pinned by its tag, which registry.k8s.io never moves, and not by a digest: a mirror or a disconnected registry that
// holds some of the platforms only has another digest for the same tag.
const defaultPauseImage = "registry.k8s.io/pause:3.10.2"

// PauseImage returns the sandbox image for a Windows build, such as 10.0.20348. An unknown build newer than Windows Server
// 2022 gets the same: from there on Windows runs older container images. For others there is an error: the pod would fail
// with "no match for platform in manifest".
func PauseImage(build string) (string, error) {
	_, number, _ := strings.Cut(build, "10.0.")
	n, err := strconv.Atoi(number)
	if err != nil || n != 17763 && n < 20348 {
		return "", fmt.Errorf("%s has no image for Windows build %q", defaultPauseImage, build)
	}
	return defaultPauseImage, nil
}
