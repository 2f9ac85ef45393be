package pawlhttp

import (
	"embed"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed page
var pageFiles embed.FS

// pageTypes are the types of the files of the page.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// pagePolicy lets the page load what is of this server, and nothing else: no script
// that came with a name, no frame around it, no other place to send anything to.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// pageFile returns the file of the page at a path, nil if there is none. All that is in
// them is known to everybody: they have nothing of the store.
func pageFile(at string) (body []byte, contentType string) {
	name := strings.TrimPrefix(at, "/")
	if at == "/" {
		name = "index.html"
	}
	contentType = pageTypes[path.Ext(name)]
	if contentType == "" || strings.Contains(name, "/") {
		return nil, ""
	}
	body, _ = pageFiles.ReadFile("page/" + name)
	return body, contentType
}

// page serves the page of operators. Its addresses are relative, so it may be below any
// path that ends with a slash.
func (c *call) page(body []byte, contentType string) error {
	if c.r.Method != "GET" && c.r.Method != "HEAD" {
		c.w.Header().Set("Allow", "GET, HEAD")
		return &problem{status: http.StatusMethodNotAllowed, code: "method", text: "the page is read only"}
	}
	h := c.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	c.begun = true
	_ = c.out.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, _ = c.w.Write(body) // who has gone does not want it
	return nil
}
