package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
)

// Process is what a process of a torture runs: it reads its [Config] and then tasks
// from in until that ends, and writes what it does to out.
func Process(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	var c Config
	if err := json.Unmarshal(line, &c); err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	rec, err := NewRecorder(out, c.Process, c.Life)
	if err != nil {
		return err
	}
	store, err := storeurl.Open(c.Store)
	if err != nil {
		return err
	}
	defer func() {
		if closed := store.Close(); err == nil {
			err = closed
		}
	}()
	if err := Work(ctx, c, store, lines, rec); err != nil {
		return err
	}
	if err := rec.Err(); err != nil {
		return fmt.Errorf("write what was done: %w", err)
	}
	return nil
}
