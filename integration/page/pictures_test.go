package page

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/pawlhttp"
)

// The pictures of the documentation are made anew if PAWL_PICTURES names their folder:
//
//	PAWL_PICTURES=$PWD/docs/images go test -count=1 -run TestPictures ./integration/page
func TestPictures(t *testing.T) {
	dir := os.Getenv("PAWL_PICTURES")
	if dir == "" {
		t.Skip("PAWL_PICTURES is not set: it is the folder to make the pictures in")
	}
	store := busy(t)
	url, _ := serve(t, store, &pawlhttp.Options{AllowActions: true, Title: "redis://locks.example"})
	v := open(t, url, 1100, false)
	v.shows("names", "deploy/prod")
	eval[any](v, `fetch('v1/force-release', {method: 'POST', headers: {'Pawl-Action': 'confirmed'}, body: '{"name":"deploy/stage"}'}).then((r) => r.status)`)
	v.shows("notable", "forced")
	v.picture(filepath.Join(dir, "serve.png"), 1100, 640)

	if _, err := store.Leave(await.Context(t), driver.Ref{Name: "deploy/prod", ID: "3f0c9e13"}); err != nil {
		t.Fatal(err)
	}
	dark := open(t, url+"#/deploy%2Fprod", 1100, true)
	dark.shows("events", "ended, after")
	dark.picture(filepath.Join(dir, "serve-name.png"), 1100, 900)

	phone := open(t, url, 360, false)
	phone.shows("names", "deploy/prod")
	phone.picture(filepath.Join(dir, "serve-phone.png"), 360, 720)
}

// picture writes what is shown to a file.
func (v *view) picture(file string, width, height int) {
	v.Helper()
	v.call("Emulation.setDeviceMetricsOverride", object{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})
	v.until(fmt.Sprintf("innerWidth === %d && innerHeight === %d", width, height))
	var shot struct{ Data string }
	if err := v.Call("Page.captureScreenshot", object{"format": "png"}, &shot); err != nil {
		v.Fatal(err)
	}
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		v.Fatal(err)
	}
	full, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		v.Fatal(err)
	}
	var small bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&small, fewColors(full)); err != nil {
		v.Fatal(err)
	}
	if err := os.WriteFile(file, small.Bytes(), 0o644); err != nil {
		v.Fatal(err)
	}
}

// fewColors makes a picture of 256 colours at the most, which is a third as large: those
// that are used most, and for others the nearest of them.
func fewColors(full image.Image) image.Image {
	count := make(map[color.NRGBA]int)
	size := full.Bounds()
	at := func(x, y int) color.NRGBA {
		c := color.NRGBAModel.Convert(full.At(x, y)).(color.NRGBA)
		return color.NRGBA{c.R | 7, c.G | 7, c.B | 7, 255}
	}
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	var palette color.Palette
	for len(palette) < 256 && len(count) > 0 {
		most := color.NRGBA{}
		for c, n := range count {
			if n > count[most] || n == count[most] && fmt.Sprint(c) < fmt.Sprint(most) {
				most = c
			}
		}
		palette = append(palette, most)
		delete(count, most)
	}
	small := image.NewPaletted(size, palette)
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			small.Set(x, y, at(x, y))
		}
	}
	return small
}
