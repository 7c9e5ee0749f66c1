package gemini

import (
	"context"
	"net/http"
)

// tap hands the response of a request to whoever waits for it in the request's
// context, and an empty one to the client: what the client cannot see, it can
// neither read through float64, nor repeat, nor follow to another host with the
// key in its headers.
type tap struct {
	next http.RoundTripper
}

// tapped returns a copy of a client that makes its requests through a tap. A
// time-out would count until the client has read its empty response, and with
// that end the request: the watcher has this task.
func tapped(c *http.Client) *http.Client {
	t := *c
	if t.Transport == nil {
		t.Transport = http.DefaultTransport
	}
	t.Transport = tap{t.Transport}
	t.Timeout = 0
	return &t
}

type catchKey struct{}

// caught is where a response is put.
type caught struct {
	response *http.Response
}

func catch(ctx context.Context) (context.Context, *caught) {
	c := new(caught)
	return context.WithValue(ctx, catchKey{}, c), c
}

func (t tap) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	c, ok := r.Context().Value(catchKey{}).(*caught)
	if !ok {
		return response, nil // a request of the client that nobody here made
	}
	c.response = response
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: r,
	}, nil
}
