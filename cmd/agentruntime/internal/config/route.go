package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/route/dial"
)

// Secret is one that ${name} stands for: in the headers of an HTTP route, and in the
// headers and the environment of an MCP server. As with keys, it stands in no file of
// the configuration.
type Secret struct {
	KeyEnv  string   `yaml:"key_env"`
	KeyFile string   `yaml:"key_file"`
	Hosts   []string `yaml:"hosts"` // that requests of HTTP routes may take it to, each at every port or at its own; none

	Value string `yaml:"-"` // what the reference leads to, once the configuration is read
	Gone  string `yaml:"-"` // why there is none
}

// MCPServer is a server whose tools routes may name: a command, or a URL.
type MCPServer struct {
	Command []string          `yaml:"command"` // a program and its arguments, spoken to over its standard input and output
	Env     map[string]string `yaml:"env"`     // of the program, beside PATH, HOME and the like; ${name} is a secret
	Dir     string            `yaml:"dir"`     // that the program runs in; the worker's own
	URL     string            `yaml:"url"`     // of streamable HTTP
	Headers map[string]string `yaml:"headers"` // of every request; ${name} is a secret

	// Marks of every tool that is imported from it: the server's own word is none.
	Egress    bool `yaml:"egress"`    // it lets data out of the system
	Untrusted bool `yaml:"untrusted"` // what it answers was written by people who are not trusted
}

// HTTP says where requests of HTTP routes, and those to MCP servers at a URL, may go.
type HTTP struct {
	Allow []string            `yaml:"allow"` // hosts, addresses and networks that may be reached although they are not public
	Hosts map[string]HTTPHost `yaml:"hosts"` // by name, or by name:port
}

// HTTPHost is what TLS with a host needs.
type HTTPHost struct {
	TLSCA   string `yaml:"tls_ca"`   // file; the system's authorities
	TLSCert string `yaml:"tls_cert"` // file of the client's certificate; none
	TLSKey  string `yaml:"tls_key"`  // file
}

// resolve reads the secrets. One that is missing is no error here: most processes
// that read a configuration need none.
func (c *Config) resolve(getenv func(string) string) {
	for name, s := range c.Named {
		p := Provider{KeyEnv: s.KeyEnv, KeyFile: s.KeyFile}
		p.readKey(getenv)
		s.Value, s.Gone = p.Key, p.KeyGone
		c.Named[name] = s
	}
}

var (
	secretForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	hostForm   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?$|^\[?[0-9A-Fa-f:]+\]?(:[0-9]{1,5})?$`)
)

// isHost accepts what routes can find a host by.
func isHost(s string) bool { return hostForm.MatchString(s) && dial.IsHost(s) }

// checkRoutes refuses what no worker can work with. It repeats no value that may be a
// secret in the wrong place.
func (c *Config) checkRoutes() error {
	for _, name := range slices.Sorted(maps.Keys(c.Named)) {
		s, at := c.Named[name], "secrets."+name
		switch {
		case !secretForm.MatchString(name):
			return &Error{at, "must be named with 1 to 64 characters of A-Z a-z 0-9 _ -"}
		case (s.KeyEnv == "") == (s.KeyFile == ""):
			return &Error{at, "must be in one of key_env and key_file"}
		case s.KeyEnv != "" && !variableForm.MatchString(s.KeyEnv):
			return &Error{at + ".key_env", "must be the name of an environment variable, not the secret itself"}
		case slices.ContainsFunc(s.Hosts, func(h string) bool { return !isHost(h) }):
			return &Error{at + ".hosts", "must be names of hosts, such as api.example.com, with a port if only that one is meant"}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.MCP)) {
		if err := c.checkServer("mcp."+name, name, c.MCP[name]); err != nil {
			return err
		}
	}
	for _, a := range c.HTTP.Allow {
		_, network := netip.ParsePrefix(a)
		if network != nil && !isHost(a) {
			return &Error{"http.allow", "must be names of hosts, addresses, or networks such as 10.0.0.0/8"}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.HTTP.Hosts)) {
		h, at := c.HTTP.Hosts[name], "http.hosts."+name
		switch {
		case !isHost(name):
			return &Error{at, "must be the name of a host, or name:port"}
		case (h.TLSCert == "") != (h.TLSKey == ""):
			return &Error{at, "must be given both tls_cert and tls_key, or neither"}
		}
	}
	return nil
}

func (c *Config) checkServer(at, name string, s MCPServer) error {
	switch {
	case !handlers.IsServerName(name):
		return &Error{at, "must be named with 1 to 40 characters of a-z 0-9 _ that start with a letter"}
	case (len(s.Command) == 0) == (s.URL == ""):
		return &Error{at, "must be reached by one of command and url"}
	case len(s.Command) > 0 && s.Command[0] == "":
		return &Error{at + ".command", "must begin with a program"}
	case s.URL != "" && !isEndpoint(s.URL):
		return &Error{at + ".url", "must begin with http:// or https://, name a host, and have no user, query or fragment; a key belongs in headers, as a secret"}
	case s.URL != "" && (len(s.Env) > 0 || s.Dir != ""), s.URL == "" && len(s.Headers) > 0:
		return &Error{at, "must be given env and dir with a command only, and headers with a url only"}
	}
	for _, of := range []struct {
		name   string
		values map[string]string
	}{{"env", s.Env}, {"headers", s.Headers}} {
		for _, key := range slices.Sorted(maps.Keys(of.values)) {
			if _, err := handlers.ExpandSecrets(of.values[key], func(name string) (string, error) {
				if _, known := c.Named[name]; !known {
					return "", errors.New("must name a secret that there is: secrets has none of that name")
				}
				return "", nil
			}); err != nil {
				return &Error{at + "." + of.name + "." + key, err.Error()}
			}
		}
	}
	return nil
}

// Expand replaces the secrets of the values. The reason says which has no value.
func (c *Config) Expand(values map[string]string) (expanded map[string]string, gone string) {
	expanded = make(map[string]string, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		text, err := handlers.ExpandSecrets(values[key], func(name string) (string, error) {
			if s := c.Named[name]; s.Value != "" {
				return s.Value, nil
			}
			return "", fmt.Errorf("the secret %q has no value: %s", name, c.Named[name].Gone)
		})
		if err != nil {
			return nil, err.Error()
		}
		expanded[key] = text
	}
	return expanded, ""
}

// TLS reads the files of the hosts.
func (h HTTP) TLS() (map[string]*tls.Config, error) {
	hosts := make(map[string]*tls.Config, len(h.Hosts))
	for _, name := range slices.Sorted(maps.Keys(h.Hosts)) {
		files, at := h.Hosts[name], "http.hosts."+name
		made := &tls.Config{MinVersion: tls.VersionTLS12}
		if files.TLSCA != "" {
			pem, err := os.ReadFile(files.TLSCA)
			if err != nil {
				return nil, &Error{at + ".tls_ca", fmt.Sprintf("cannot be read: %v", err)}
			}
			made.RootCAs = x509.NewCertPool()
			if !made.RootCAs.AppendCertsFromPEM(pem) {
				return nil, &Error{at + ".tls_ca", "must hold certificates in PEM"}
			}
		}
		if files.TLSCert != "" {
			pair, err := tls.LoadX509KeyPair(files.TLSCert, files.TLSKey)
			if err != nil {
				return nil, &Error{at + ".tls_cert", fmt.Sprintf("cannot be used with tls_key: %v", err)}
			}
			made.Certificates = []tls.Certificate{pair}
		}
		hosts[strings.ToLower(name)] = made
	}
	return hosts, nil
}
