package codes

// Codes of phase Artifacts.
const (
	ArtifactMissing         Code = "CAPW-0401"
	ArtifactVersionMismatch Code = "CAPW-0402"
	ArtifactChecksum        Code = "CAPW-0403"
	ArtifactRefused         Code = "CAPW-0404"
	ArtifactUnreachable     Code = "CAPW-0405"
	ArtifactTooLarge        Code = "CAPW-0406"
	ArtifactUnsafe          Code = "CAPW-0407"
	ArtifactNotPlaced       Code = "CAPW-0408"
	ProgramMissing          Code = "CAPW-0409"
	ProgramUnusable         Code = "CAPW-0410"
	ArtifactInvalid         Code = "CAPW-0411"
)

func artifactsCodes() []Info {
	return []Info{
		{ArtifactMissing, "ArtifactMissing", Terminal, "A file that the node needs is neither in the image nor on media, and the document gives no URL for it.",
			"The message names it. Put it into the image or on the media, or give the artifact a url and sha256."},
		{ArtifactVersionMismatch, "ArtifactVersionMismatch", Terminal, "A program has another version than the document wants.",
			"The message names both versions. Use an image of the cluster's Kubernetes version, or give the artifact a url and sha256 to be downloaded."},
		{ArtifactChecksum, "ArtifactChecksum", Terminal, "A file is not the one that the document names: its SHA-256 differs, several times.",
			"The message has both checksums. Correct sha256, or find out who changes the file on its way."},
		{ArtifactRefused, "ArtifactRefused", Terminal, "The server does not give out a file (it is not there, or access is denied).",
			"The message has URL and status. Check url, mirror and credentials."},
		{ArtifactUnreachable, "ArtifactUnreachable", Retryable, "A file could not be downloaded; what has arrived is kept.",
			"The message has the cause. Check name resolution, route, os.proxy and os.trustedCAs."},
		{ArtifactTooLarge, "ArtifactTooLarge", Terminal, "A file or the content of an archive is larger than the agent accepts.",
			"Check that url names the right file."},
		{ArtifactUnsafe, "ArtifactUnsafe", Terminal, "An archive is damaged, or holds names or links that could leave its folder or mean something else to Windows.",
			"The message names the entry. Pack the archive with plain files and folders only."},
		{ArtifactNotPlaced, "ArtifactNotPlaced", Retryable, "A file could not be read, written or moved into its place.",
			"The message has the answer of Windows. Check free space and what holds the file open."},
		{ProgramMissing, "ProgramMissing", Terminal, "A program that shall run as a service, or that joins the node, is not there.",
			"The message has its path. Put it into the image, list it under artifacts, or correct the path."},
		{ProgramUnusable, "ProgramUnusable", Retryable, "A program does not tell its version when it is asked.",
			"The message has its answer. The file may be damaged, or be of another architecture."},
		{ArtifactInvalid, "ArtifactInvalid", Terminal, "An artifact of the document can never be had: url, media or destination make no sense.",
			"The message names the artifact and the field."},
	}
}
