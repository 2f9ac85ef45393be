package dist

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// SBOM returns the bill of materials of a binary in the format of CycloneDX 1.5: the
// modules that it says it was built from, in the versions that users would get, and
// Go's standard library.
func SBOM(binary, version string, now time.Time) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read what %s was built from: %w", binary, err)
	}
	doc := sbom{
		Schema: "http://cyclonedx.org/schema/bom-1.5.schema.json", Format: "CycloneDX", Spec: "1.5", Version: 1,
		Metadata: metadata{Timestamp: now.UTC().Format(time.RFC3339), Component: component("application", info.Path, version, "")},
	}
	doc.Components = append(doc.Components, component("library", "std", strings.TrimPrefix(info.GoVersion, "go"), ""))
	for _, m := range info.Deps {
		if m.Replace != nil { // by a folder: it is of this repository
			m = &debug.Module{Path: m.Path, Version: version}
		}
		if m.Version == "(devel)" || strings.HasPrefix(m.Path, repository+"/") || m.Path == repository {
			m = &debug.Module{Path: m.Path, Version: version}
		}
		doc.Components = append(doc.Components, component("library", m.Path, m.Version, m.Sum))
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the bill of materials: %w", err)
	}
	return append(text, '\n'), nil
}

type sbom struct {
	Schema     string    `json:"$schema"`
	Format     string    `json:"bomFormat"`
	Spec       string    `json:"specVersion"`
	Version    int       `json:"version"`
	Metadata   metadata  `json:"metadata"`
	Components []library `json:"components"`
}

type metadata struct {
	Timestamp string  `json:"timestamp"`
	Component library `json:"component"`
}

type library struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func component(kind, path, version, sum string) library {
	purl := "pkg:golang/" + path + "@" + version
	c := library{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
	if sum != "" {
		c.Properties = []property{{"go:sum", sum}}
	}
	return c
}
