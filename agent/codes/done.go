package codes

// Codes of phase Done.
const (
	SecretsNotRemoved  Code = "CAPW-1001"
	SentinelNotWritten Code = "CAPW-1002"
)

func doneCodes() []Info {
	return []Info{
		{SecretsNotRemoved, "SecretsNotRemoved", Retryable, "The token, or another secret of the first boot, is still on this node's disk and cannot be removed.",
			"The message names the file. The node works; check the disk and the access control of the folder."},
		{SentinelNotWritten, "SentinelNotWritten", Retryable, "The file that tells Cluster API of the success cannot be written.",
			"Check free space on C: and the access control of C:\\run\\cluster-api."},
	}
}
