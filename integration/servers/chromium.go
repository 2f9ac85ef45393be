package servers

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// Chromium is a browser without a window, that is told what to do through a pipe, by
// the Chrome DevTools Protocol.
type Chromium struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *os.File
	dir    string
	stderr string
	done   chan struct{}

	mu      sync.Mutex
	next    int64
	replies map[int64]chan message
	tabs    map[string]*Tab // by session
	ended   error
}

// message is one of the protocol.
type message struct {
	ID      int64           `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// chromiums are the programs, by what Debian calls them; the first is the smallest.
var chromiums = []string{"chromium-headless-shell", "chromium"}

// StartChromium starts a browser that keeps what it has in dir.
func StartChromium(dir string) (*Chromium, error) {
	program := ""
	for _, name := range chromiums {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		return nil, fmt.Errorf("%w, or: apt-get install %s", ErrMissing, chromiums[0])
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-extensions", "--hide-scrollbars", "--mute-audio",
		"--lang=en", "--user-data-dir="+dir, "--remote-debugging-pipe", "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+dir, "TZ=UTC")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	c := &Chromium{
		cmd: cmd, in: in, out: out, dir: dir, stderr: log.Name(), done: make(chan struct{}),
		replies: make(map[int64]chan message), tabs: make(map[string]*Tab),
	}
	err = cmd.Start()
	theirIn.Close()
	theirOut.Close()
	if err != nil {
		return nil, err
	}
	go c.read()
	return c, nil
}

// Close ends the browser.
func (c *Chromium) Close() {
	c.in.Close() // it ends with its pipe
	c.cmd.Process.Kill()
	c.cmd.Wait()
	<-c.done
	c.out.Close()
}

// read passes on what the browser says.
func (c *Chromium) read() {
	defer close(c.done)
	in := bufio.NewReaderSize(c.out, 1<<20)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			c.end(err)
			return
		}
		var m message
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			c.end(err)
			return
		}
		c.mu.Lock()
		reply, tab := c.replies[m.ID], c.tabs[m.Session]
		delete(c.replies, m.ID)
		c.mu.Unlock()
		switch {
		case reply != nil:
			reply <- m
		case tab != nil:
			tab.told(&m)
		}
	}
}

func (c *Chromium) end(err error) {
	text, _ := os.ReadFile(c.stderr)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = fmt.Errorf("chromium has ended: %w\n%s", err, text)
	for _, reply := range c.replies {
		close(reply)
	}
	clear(c.replies)
}

// call sends a command, and waits for what it returns.
func (c *Chromium) call(session, method string, params, result any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.ended != nil {
		defer c.mu.Unlock()
		return c.ended
	}
	c.next++
	m := message{ID: c.next, Session: session, Method: method, Params: text}
	reply := make(chan message, 1)
	c.replies[m.ID] = reply
	if text, err = json.Marshal(m); err == nil {
		_, err = c.in.Write(append(text, 0))
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	m, ok := <-reply
	switch {
	case !ok:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.ended
	case m.Error != nil:
		return fmt.Errorf("%s: %s", method, m.Error.Message)
	case result == nil:
		return nil
	}
	return json.Unmarshal(m.Result, result)
}

// Tab is one page, which shares no storage with others.
type Tab struct {
	browser *Chromium
	session string

	mu      sync.Mutex
	trouble []string
}

// Open opens a page.
func (c *Chromium) Open() (*Tab, error) {
	var made struct{ BrowserContextID, TargetID, SessionID string }
	if err := c.call("", "Target.createBrowserContext", map[string]any{"disposeOnDetach": true}, &made); err != nil {
		return nil, err
	}
	if err := c.call("", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": made.BrowserContextID}, &made); err != nil {
		return nil, err
	}
	if err := c.call("", "Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &made); err != nil {
		return nil, err
	}
	t := &Tab{browser: c, session: made.SessionID}
	c.mu.Lock()
	c.tabs[t.session] = t
	c.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		if err := t.Call(domain+".enable", nil, nil); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Call sends a command of the protocol about this page.
func (t *Tab) Call(method string, params, result any) error {
	if params == nil {
		params = struct{}{}
	}
	return t.browser.call(t.session, method, params, result)
}

// Eval evaluates an expression in the page, also one that returns a promise.
func (t *Tab) Eval(expression string, result any) error {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	err := t.Call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true}, &r)
	switch {
	case err != nil:
		return err
	case r.ExceptionDetails != nil:
		return errors.New(r.ExceptionDetails.Text + " " + r.ExceptionDetails.Exception.Description)
	case result == nil || r.Result.Value == nil:
		return nil
	}
	return json.Unmarshal(r.Result.Value, result)
}

// told hears what happens in the page.
func (t *Tab) told(m *message) {
	switch m.Method {
	case "Runtime.exceptionThrown", "Runtime.consoleAPICalled":
	case "Log.entryAdded":
		var e struct {
			Entry struct{ Source, Level string }
		}
		if json.Unmarshal(m.Params, &e) == nil && (e.Entry.Source == "network" || e.Entry.Level != "error") {
			return // a status of a reply
		}
	default:
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trouble = append(t.trouble, string(m.Params))
}

// Trouble returns the exceptions that nobody has caught, the messages on the console, and what the
// page's policy has refused.
func (t *Tab) Trouble() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.trouble
}
