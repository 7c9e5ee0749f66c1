package handlers_test

import (
	"context"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

func amount(t *testing.T, s string) handlers.Amount {
	t.Helper()
	a, err := handlers.ParseAmount(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestACostIsExact(t *testing.T) {
	price := handlers.Price{Input: amount(t, "1.25"), Cached: amount(t, "0.125"), Output: amount(t, "10")}
	odd := handlers.Price{Input: amount(t, "0.1"), Cached: amount(t, "0.000001"), Output: amount(t, "0.3")}
	most := handlers.Price{Input: amount(t, "999999999.999999"), Cached: amount(t, "0"), Output: amount(t, "999999999.999999")}
	for _, c := range []struct {
		price handlers.Price
		usage events.Usage
		want  string
	}{
		{price, events.Usage{}, "0"},
		{price, events.Usage{Input: 1}, "0.00000125"},
		{price, events.Usage{Input: 1_000_000, Output: 1_000_000}, "11.25"},
		{price, events.Usage{Input: 1000, Cached: 600, Output: 300, Reasoning: 200}, "0.003575"},
		{price, events.Usage{Input: 800_000}, "1"},
		{odd, events.Usage{Input: 1, Output: 1}, "0.0000004"},
		{odd, events.Usage{Input: 3, Cached: 3}, "0.000000000003"},
		{most, events.Usage{Input: math.MaxInt64, Output: math.MaxInt64}, "18446744073709533167255.926290448386"},
	} {
		if got := c.price.Of(c.usage); got != c.want {
			t.Errorf("%+v at %+v costs %s, want %s", c.usage, c.price, got, c.want)
		}
	}
}

func TestWhatIsNoAmountIsRefused(t *testing.T) {
	for _, s := range []string{"", ".", ".5", "5.", "-1", "+1", "1e3", "1,5", "0x1", " 1", "1.0000001", "1000000000", "١", "NaN"} {
		if a, err := handlers.ParseAmount(s); err == nil {
			t.Errorf("%q was read as %d", s, a)
		}
	}
}

// tariff is a table of prices.
type tariff map[string]handlers.Price

func (p tariff) Price(model string) (handlers.Price, bool) {
	price, known := p[model]
	return price, known
}
func (p tariff) Currency() string { return "EUR" }

func TestTheCostOfARunIsToldWhereItsPriceIsKnown(t *testing.T) {
	price := handlers.Price{Input: amount(t, "2"), Cached: amount(t, "1"), Output: amount(t, "8")}
	for _, c := range []struct {
		name   string
		last   runtimetest.Step
		prices tariff
		want   *events.Cost
	}{
		{"completed", runtimetest.Complete(`"done"`), tariff{"test/model": price}, &events.Cost{Amount: "0.00056", Currency: "EUR"}},
		{"failed", runtimetest.Fails(&runtime.ModelError{Class: runtime.ClassInvalid, Status: 400}), tariff{"test/model": price}, &events.Cost{Amount: "0.00028", Currency: "EUR"}},
		{"unknown", runtimetest.Complete(`"done"`), tariff{"other/model": price}, nil},
	} {
		w, worker := started(t, agent(), runtimetest.RunJS("return"), c.last)
		worker.Dispatcher.Prices = c.prices
		worker.Settle()
		r := only(t, w)
		d, err := worker.Dispatcher.GetRun(t.Context(), "ns", r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, d.Cost); diff != "" {
			t.Errorf("%s: run.get (-want +got):\n%s", c.name, diff)
		}
		told := 0
		for i := range w.Published {
			e := &w.Published[i]
			var cost *events.Cost
			switch p, err := e.Payload(); p := p.(type) {
			case events.RunCompletedData:
				cost = p.Cost
			case events.RunFailedData:
				cost = p.Cost
			default:
				if err != nil {
					t.Fatal(err)
				}
				continue
			}
			told++
			if diff := cmp.Diff(c.want, cost); diff != "" {
				t.Errorf("%s: public event (-want +got):\n%s", c.name, diff)
			}
		}
		if told != 1 {
			t.Errorf("%s: the end was told %d times", c.name, told)
		}
		api := handlers.API{Host: worker.Dispatcher.Host, Lister: listed{handlers.Row{Summary: r.Summary()}}}
		answer, err := api.Handle(t.Context(), "ns", handlers.VerbList, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, answer.(handlers.ListAnswer).Runs[0].Cost); diff != "" {
			t.Errorf("%s: run.list (-want +got):\n%s", c.name, diff)
		}
	}
}

// listed is a list of one page.
type listed []handlers.Row

func (l listed) List(context.Context, string, handlers.Filter) ([]handlers.Row, string, error) {
	return l, "", nil
}
