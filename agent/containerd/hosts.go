package containerd

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/BurntSushi/toml"

	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// hostEntry is what hosts.toml says of one server:
// https://github.com/containerd/containerd/blob/main/docs/hosts.md.
type hostEntry struct {
	Server       string   `toml:"server,omitempty"`
	Capabilities []string `toml:"capabilities,omitempty"`
	CA           string   `toml:"ca,omitempty"`
	SkipVerify   bool     `toml:"skip_verify,omitempty"`
	OverridePath bool     `toml:"override_path,omitempty"`
}

// header is sent to a server.
type header struct {
	Authorization []string `toml:"Authorization"`
}

// HostsFile is the file with mirrors in a registry's folder. It holds credentials.
const HostsFile = "hosts.toml"

// Hosts returns the name of a registry's folder below config_path, and the files in it by name: hosts.toml, and the
// certificates that it names. Errors name the field and hold no secrets.
func Hosts(r nodev1.Registry) (folder string, files map[string][]byte, err error) {
	folder, err = hostFolder(r.Host)
	if err != nil {
		return "", nil, err
	}
	files = map[string][]byte{}
	var b bytes.Buffer

	// What is not in a table comes first: it is about the server that is asked when no mirror has the image. Without server,
	// containerd derives it from the image's name, and knows that docker.io has another.
	server := hostEntry{Server: r.Server}
	if r.Host == "_default" && r.Server == "" && r.Username+r.Password != "" {
		return "", nil, errors.New("username: _default without a server would send it to every registry")
	}
	if r.Server != "" {
		if _, err := serverURL(r.Server); err != nil {
			return "", nil, fmt.Errorf("server: %w", err)
		}
	}
	if server.CA, err = certificates(files, "server.crt", r.CA); err != nil {
		return "", nil, fmt.Errorf("ca: %w", err)
	}
	if err := entry(&b, nil, server, r.Username, r.Password); err != nil {
		return "", nil, err
	}

	seen := map[string]bool{}
	for i, m := range r.Mirrors {
		u, override, err := mirrorURL(m)
		if err != nil {
			return "", nil, fmt.Errorf("mirrors[%d].url: %w", i, err)
		}
		if seen[u] {
			return "", nil, fmt.Errorf("mirrors[%d].url: %s is listed twice", i, u)
		}
		seen[u] = true
		e := hostEntry{Capabilities: []string{"pull", "resolve"}, SkipVerify: m.SkipVerify, OverridePath: override}
		if e.CA, err = certificates(files, fmt.Sprintf("mirror-%d.crt", i), m.CA); err != nil {
			return "", nil, fmt.Errorf("mirrors[%d].ca: %w", i, err)
		}
		if err := entry(&b, toml.Key{"host", u}, e, m.Username, m.Password); err != nil {
			return "", nil, err
		}
	}
	files[HostsFile] = b.Bytes()
	return folder, files, verifyHosts(b.Bytes(), len(r.Mirrors))
}

// entry appends one server. The order of tables is the order in which containerd asks, and an encoder of maps would sort
// them by name; so each table's head is written here and its content is encoded.
func entry(b *bytes.Buffer, key toml.Key, e hostEntry, username, password string) error {
	if len(key) > 0 {
		fmt.Fprintf(b, "\n[%s]\n", key)
	}
	content, err := encode(e)
	if err != nil {
		return err
	}
	b.Write(content)
	if username == "" && password == "" {
		return nil
	}
	if strings.Contains(username, ":") {
		return errors.New("username: basic authentication allows no colon in it")
	}
	basic := base64.StdEncoding.EncodeToString([]byte(username + ":" + password))
	content, err = encode(header{Authorization: []string{"Basic " + basic}})
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "\n[%s]\n%s", append(key[:len(key):len(key)], "header"), content)
	return nil
}

// hostFolder returns the folder in which containerd on Windows looks for a registry: a port in underscores, as a colon
// cannot be in a name.
func hostFolder(host string) (string, error) {
	if host == "_default" {
		return host, nil
	}
	u, err := url.Parse("https://" + host)
	if err != nil || host == "" || u.Host != host || strings.ContainsAny(host, `[]\/`) {
		return "", fmt.Errorf("host: %q is not a host name with or without a port", host)
	}
	if port := u.Port(); port != "" {
		return u.Hostname() + "_" + port + "_", nil
	}
	return u.Hostname(), nil
}

// mirrorURL returns a mirror's URL as containerd wants it. Without override_path containerd appends /v2 to the path, which
// fits a registry that is served below a path; a mirror that keeps images below one has them below /v2/<path>.
func mirrorURL(m nodev1.RegistryMirror) (location string, override bool, err error) {
	u, err := serverURL(m.URL)
	if err != nil {
		return "", false, err
	}
	u.Path = strings.TrimSuffix(path.Clean("/"+u.Path), "/")
	switch {
	case m.OverridePath:
		return u.String(), true, nil
	case u.Path == "" || u.Path == "/v2":
		u.Path = ""
		return u.String(), false, nil
	case !strings.HasPrefix(u.Path, "/v2/"):
		u.Path = "/v2" + u.Path
	}
	return u.String(), true, nil
}

func serverURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil, u.Scheme != "https" && u.Scheme != "http", u.Host == "", u.RawQuery != "", u.Fragment != "":
		return nil, errors.New("must be http:// or https://, a host and at most a path")
	case u.User != nil:
		return nil, errors.New("must hold no credentials; there are username and password for them")
	}
	return u, nil
}

// certificates adds a file of certificates, if there are any, and returns its name: containerd looks for it beside hosts.toml.
func certificates(files map[string][]byte, name, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	rest, n := []byte(text), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "", fmt.Errorf("certificate %d: %w", n+1, err)
		}
		n++
	}
	if n == 0 {
		return "", errors.New("no certificate in PEM form in it")
	}
	files[name] = []byte(text)
	return name, nil
}

// verifyHosts reads a finished hosts.toml.
func verifyHosts(content []byte, mirrors int) error {
	var c struct {
		Host map[string]hostEntry `toml:"host"`
	}
	if _, err := toml.Decode(string(content), &c); err != nil {
		return fmt.Errorf("reading back %s: %w", HostsFile, err)
	}
	if len(c.Host) != mirrors {
		return fmt.Errorf("reading back %s: %d mirrors instead of %d", HostsFile, len(c.Host), mirrors)
	}
	return nil
}
