// Package cloudbase turns a NodeConfiguration into what cloudbase-init consumes in a Windows guest, and reads it back.
//
// The user data is one batch file. cloudbase-init takes it for one because it starts with "rem cmd", and starts it once
// per instance-id as
//
//	cmd.exe /c <file>
//
// It finds the node agent, checks it and starts it with the path of this very file, in which the agent finds its
// document: as a PEM block of gzip and JSON behind the last line that cmd.exe executes. One script, because of the other
// formats cloudbase-init has, runcmd runs everything again when one command asks for a reboot, a "hostname:" in a
// cloud-config does the same, and a reboot from a part of a multipart message drops the parts behind it.
//
// What cloudbase-init makes of the script's exit code:
//
//	1001           reboot; the script is done
//	1002           run the script again at the next boot
//	1003           reboot and run the script again
//	anything else  the script is done, whether it failed or not
//
// So 1003 without an end is a reboot loop without an end. The script itself exits with none of the three; it passes on
// the agent's exit code, and the agent counts its boots.
//
// The package is pure: the same arguments give the same bytes.
package cloudbase
