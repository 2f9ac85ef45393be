package pawlhttp_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/pawlhttp"
)

type object = map[string]any

// document is openapi.json.
var document = sync.OnceValue(func() object {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		panic(err)
	}
	var doc object
	if err := json.Unmarshal(text, &doc); err != nil {
		panic(err)
	}
	return doc
})

// at follows keys, and references.
func at(v any, keys ...string) any {
	for _, key := range keys {
		o, _ := v.(object)
		if o == nil {
			return nil
		}
		v = resolved(o[key])
	}
	return v
}

func resolved(v any) any {
	o, _ := v.(object)
	if to, ok := o["$ref"].(string); ok {
		return at(document(), strings.Split(strings.TrimPrefix(to, "#/"), "/")...)
	}
	return v
}

// conforms returns how v differs from a schema, of the keywords that are used here.
func conforms(schema, v any, where string) error {
	s, ok := resolved(schema).(object)
	if !ok {
		return fmt.Errorf("%s: there is no schema", where)
	}
	if want, ok := s["const"]; ok && v != want {
		return fmt.Errorf("%s is %v, want %v", where, v, want)
	}
	if enum, ok := s["enum"].([]any); ok && !slices.Contains(enum, v) {
		return fmt.Errorf("%s is %v, want one of %v", where, v, enum)
	}
	switch kind := s["type"]; v := v.(type) {
	case object:
		if kind != "object" {
			return fmt.Errorf("%s is an object, want %v", where, kind)
		}
		properties, _ := s["properties"].(object)
		required, _ := s["required"].([]any)
		for _, key := range required {
			if _, ok := v[key.(string)]; !ok {
				return fmt.Errorf("%s has no %v", where, key)
			}
		}
		for key, field := range v {
			if properties == nil {
				break
			}
			if properties[key] == nil && s["additionalProperties"] == false {
				return fmt.Errorf("%s has a field %q, which is not described", where, key)
			}
			if err := conforms(properties[key], field, where+"."+key); err != nil {
				return err
			}
		}
	case []any:
		if kind != "array" {
			return fmt.Errorf("%s is an array, want %v", where, kind)
		}
		for i, item := range v {
			if err := conforms(s["items"], item, fmt.Sprintf("%s[%d]", where, i)); err != nil {
				return err
			}
		}
	case string:
		most, bounded := s["maxLength"].(float64)
		least, _ := s["minLength"].(float64)
		n := float64(utf8.RuneCountInString(v))
		pattern, _ := s["pattern"].(string)
		if kind != nil && kind != "string" || n < least || bounded && n > most || !regexp.MustCompile(pattern).MatchString(v) {
			return fmt.Errorf("%s is %q, which is not %v", where, v, s)
		}
	case float64:
		least, low := s["minimum"].(float64)
		most, high := s["maximum"].(float64)
		if kind != "integer" || v != math.Trunc(v) || low && v < least || high && v > most {
			return fmt.Errorf("%s is %v, which is not %v", where, v, s)
		}
	case bool:
		if kind != "boolean" {
			return fmt.Errorf("%s is %v, want %v", where, v, kind)
		}
	}
	return nil
}

// asDescribed returns how a reply differs from what openapi.json says.
func asDescribed(method, path string, status int, kind string, body []byte) error {
	operation := at(document(), "paths", path, strings.ToLower(method))
	if operation == nil {
		if status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusForbidden || status == http.StatusMisdirectedRequest {
			return described(at(document(), "components", "schemas", "Error"), body)
		}
		return fmt.Errorf("%s %s is not described, and returned %d", method, path, status)
	}
	content, _ := at(operation, "responses", fmt.Sprint(status), "content").(object)
	if content == nil {
		return fmt.Errorf("%s %s returned %d, which is not described: %s", method, path, status, body)
	}
	if content[kind] == nil {
		return fmt.Errorf("%s %s returned %d with type %q, described are %v", method, path, status, kind, slices.Collect(maps.Keys(content)))
	}
	if kind != "application/json" {
		return nil
	}
	return described(at(content[kind], "schema"), body)
}

func described(schema any, body []byte) error {
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return fmt.Errorf("%v in %q", err, body)
	}
	return conforms(schema, v, "the reply")
}

// Every path of the server is described, and the other way round.
func TestOpenAPIPaths(t *testing.T) {
	store := memstore.New()
	defer store.Close()
	s := pawlhttp.New(store, nil)
	defer s.Close()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "/openapi.json", nil))
	var served object
	if err := json.Unmarshal(w.Body.Bytes(), &served); err != nil || served["openapi"] != "3.1.0" {
		t.Fatalf("openapi.json is %.100s: %v", w.Body, err)
	}
	paths := slices.Sorted(maps.Keys(at(served, "paths").(object)))
	if known := pawlhttp.Paths(s); !slices.Equal(paths, known) {
		t.Errorf("described are %q\nserved are %q", paths, known)
	}
	for _, path := range paths {
		for method := range at(served, "paths", path).(object) {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(strings.ToUpper(method), path+"?surely=not", nil))
			if w.Code == http.StatusNotFound || w.Code == http.StatusMethodNotAllowed {
				t.Errorf("%s %s returns %d", method, path, w.Code)
			}
		}
	}
}
