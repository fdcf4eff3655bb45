package winhost

// replacesFiles says whether a reboot will put files into the place of others, by the value PendingFileRenameOperations:
// pairs of a file and its new name, which is empty where the file is only to be deleted. Nothing waits for a deletion;
// installers leave some behind all the time.
func replacesFiles(operations []string) bool {
	for i := 1; i < len(operations); i += 2 {
		if operations[i] != "" {
			return true
		}
	}
	return false
}
