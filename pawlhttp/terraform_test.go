package pawlhttp_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/pawlhttp"
)

// info is what Terraform 1.9 sends.
const info = `{"ID":"5b1f2f0c-4d0e-3a57-1d5c-0a9b8c7d6e5f","Operation":"OperationTypeApply","Info":"","Who":"ann@laptop","Version":"1.9.8","Created":"2026-11-23T08:00:00.123456Z","Path":""}`

func (a *api) terraform(method, path, body string) (int, string) {
	a.t.Helper()
	res, err := a.try(await.Context(a.t), method, path, body)
	if err != nil {
		a.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func TestTerraform(t *testing.T) {
	store := memory(t)
	a := serve(t, store, nil)
	other := strings.NewReplacer("5b1f", "ffff", "ann@", "bob@").Replace(info)
	want := func(what string, status, code int, text string) {
		t.Helper()
		if status != code {
			t.Fatalf("%s: %d %s, want %d", what, status, text, code)
		}
	}
	for range 2 { // the client repeats what got no reply
		status, text := a.terraform("LOCK", "/terraform/prod/net", info)
		want("lock", status, 200, text)
	}
	status, text := a.terraform("LOCK", "/terraform/prod/net", other)
	want("another lock", status, 423, text)
	var holder struct{ ID, Operation, Who, Created, Path string }
	if err := json.Unmarshal([]byte(text), &holder); err != nil {
		t.Fatal(err)
	}
	if holder.ID != "5b1f2f0c-4d0e-3a57-1d5c-0a9b8c7d6e5f" || holder.Who != "ann@laptop" || holder.Operation != "OperationTypeApply" || holder.Path != "terraform/prod/net" {
		t.Errorf("the holder is %s", text)
	}
	if _, err := time.Parse(time.RFC3339, holder.Created); err != nil {
		t.Error(err)
	}
	if q := a.get("/v1/inspect", "name", "terraform/prod/net"); len(q.Holders) != 1 || q.Holders[0].TTLMS < 23*time.Hour.Milliseconds() {
		t.Errorf("inspect: %s", q.Text)
	}
	status, text = a.terraform("LOCK", "/terraform/prod/db", other)
	want("another state", status, 200, text)
	status, text = a.terraform("UNLOCK", "/terraform/prod/net", "")
	want("force-unlock without a right", status, 403, text)
	for range 2 {
		status, text = a.terraform("UNLOCK", "/terraform/prod/net", info)
		want("unlock", status, 200, text)
	}
	status, text = a.terraform("LOCK", "/terraform/prod/net?ttl=90m", other)
	want("lock when it is free", status, 200, text)

	ops := serve(t, store, &pawlhttp.Options{Access: access(t, "ops token:"+adminToken+" admin terraform/*\nci token:"+ciToken+" lock terraform/*")})
	ops.token = ciToken
	status, text = ops.terraform("UNLOCK", "/terraform/prod/net", "")
	want("force-unlock with the right to lock", status, 403, text)
	ops.token = adminToken
	status, text = ops.terraform("UNLOCK", "/terraform/prod/net", "")
	want("force-unlock", status, 200, text)
	status, text = ops.terraform("LOCK", "/terraform/prod/net", info)
	want("lock after that", status, 200, text)

	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"LOCK", "/terraform/", info, 200}, // a name is a name
		{"LOCK", "/terraform/x", "", 400},
		{"LOCK", "/terraform/x", `{"ID":"?"}`, 400},
		{"LOCK", "/terraform/x?ttl=1", info, 400},
		{"LOCK", "/terraform/x?ttl=1000h", info, 400},
		{"LOCK", "/terraform/x?tll=1h", info, 400},
		{"UNLOCK", "/terraform/x", "{", 400},
		{"UNLOCK", "/terraform/x", "{}", 400},
		{"LOCK", "/terraform/%7Bx", info, 400},
		{"GET", "/terraform/x", "", 405},
		{"LOCK", "/v1/acquire", info, 405},
	} {
		if status, text := a.terraform(tt.method, tt.path, tt.body); status != tt.status {
			t.Errorf("%s %s %s: %d %s, want %d", tt.method, tt.path, tt.body, status, text, tt.status)
		}
	}
	who := strings.Replace(info, "ann@laptop", strings.Repeat("é", 100)+"\\u0007", 1)
	status, text = a.terraform("LOCK", "/terraform/long", who)
	want("a long name", status, 200, text)
}
